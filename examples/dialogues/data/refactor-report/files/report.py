import sys
from pathlib import Path

sums = {}
for line in Path(sys.argv[1]).read_text().splitlines():
    if line.strip():
        name, amount = line.strip().split(";")
        sums[name] = sums.get(name, 0) + int(amount)
for name in sorted(sums):
    print(f"{name}: {sums[name]}")
