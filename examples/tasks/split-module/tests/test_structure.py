import ast
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "shop"
HOME = {
    "prices": {"VAT_PERCENT", "discounted", "rounded", "with_vat"},
    "stock": {"OutOfStockError", "Stock"},
    "orders": {"Order"},
}


def parsed(name):
    return ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))


def defined(tree):
    """The public names that a module makes itself."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def of_the_package(tree):
    """The modules of the package that a module imports."""
    seen = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").startswith("shop")
        ):
            seen |= {(node.module or "").removeprefix("shop").strip(".")} | {
                alias.name for alias in node.names if (PACKAGE / f"{alias.name}.py").is_file()
            }
        elif isinstance(node, ast.Import):
            seen |= {a.name.removeprefix("shop").strip(".") for a in node.names if "shop" in a.name}
    return seen


class Structure(unittest.TestCase):
    def test_the_old_module_is_gone(self):
        self.assertFalse((ROOT / "shop.py").exists())

    def test_each_name_is_made_in_its_module(self):
        for name, names in HOME.items():
            self.assertEqual(defined(parsed(name)), names, name)

    def test_the_package_itself_makes_nothing(self):
        self.assertEqual(defined(parsed("__init__")), set())

    def test_prices_and_stock_know_nothing_of_the_package(self):
        for name in ("prices", "stock"):
            self.assertEqual(of_the_package(parsed(name)), set(), name)
        self.assertLessEqual(of_the_package(parsed("orders")), {"", "prices", "stock"})


if __name__ == "__main__":
    unittest.main()
