"""The names of hal.core.model: each is where its table says, and the type checker sees which there are."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import hal
import hal.core.model as model

SOURCE = Path(hal.__file__).parent


def test_every_name_of_the_model_is_in_the_module_that_the_table_names() -> None:
    """Table, `__all__` and what the type checker reads say the same."""
    tree = ast.parse(Path(model.__file__).read_text())
    checked = {
        name.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert checked == {name: f"hal.core.model.{home}" for name, home in model._HOME_OF.items()}
    assert set(model.__all__) == set(checked)
    for name, module in checked.items():
        assert getattr(model, name) is getattr(import_module(str(module)), name)


def test_a_module_that_loads_names_late_does_not_hide_misspelt_ones_from_the_type_checker() -> None:
    """A `__getattr__` of a module that the type checker sees would make it believe in every name."""
    seen = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
    ]
    assert seen == []


def test_an_error_of_the_model_loads_no_specs() -> None:
    """Nor msgspec, which takes longer than all else that a small command needs."""
    ask = "import sys; from hal.core.model import HALError; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in loaded if name.startswith("hal.")}
    assert own == {"hal.core", "hal.core.model", "hal.core.model.errors", "hal.core.model.printable"}
    assert "msgspec" not in loaded
