#!/bin/sh
set -e
here=$(cd "$(dirname "$0")" && pwd)
rm shop.py
cp -r "$here/shop" shop
