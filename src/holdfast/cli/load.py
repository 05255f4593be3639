"""Loads an application given as MODULE:ATTRIBUTE, with errors that suggest the right one."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.client import Holdfast
from holdfast.client.database import Database
from holdfast.errors import ConfigurationError, hint


def load_app(target: str) -> Holdfast:
    """Return the application; the current folder is searched first."""
    module, found = load_object(target)
    if not isinstance(found, Holdfast):
        kind = type(found).__name__
        raise ConfigurationError(f"{target} is of type {kind}, not a Holdfast application{_instead(module)}")
    return found


def load_object(target: str) -> tuple[ModuleType, Any]:
    """Return the module and the object that MODULE:ATTRIBUTE names."""
    module_name, _, attribute = target.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not module_name:
        check_target(target)
    module = _import(module_name)
    if not attribute:
        raise ConfigurationError(f"{target!r} names no attribute; write MODULE:ATTRIBUTE{_as_in(module)}")
    found: Any = module
    for name in attribute.split("."):
        found = _attribute(module, found, name, target)
    return module, found


def check_target(target: str) -> None:
    """Raise ConfigurationError unless the target names a module and an attribute. Nothing is imported."""
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise ConfigurationError(f"{target!r} names no module; write MODULE:ATTRIBUTE, as in app:hf")
    if not attribute:
        raise ConfigurationError(f"{target!r} names no attribute; write MODULE:ATTRIBUTE, as in {module_name}:hf")


def redirect(hf: Holdfast, **settings: object) -> None:
    """Override settings of an application; None means unchanged."""
    hf.database = Database(hf.settings.with_(**settings))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            near = hint(name, [path.stem for path in Path().glob("*.py")])
            raise ConfigurationError(
                f"there is no module {error.name!r} in {os.getcwd()} or on sys.path{near}"
            ) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> ConfigurationError:
    what = f"{type(error).__name__}: {error}"
    return ConfigurationError(f"importing {name!r} failed{_where(error)}: {what}; HOLDFAST_DEBUG=1 shows the traceback")


def _where(error: BaseException) -> str:
    """Return the last line of the user's own code in the traceback, not one in a library."""
    if isinstance(error, SyntaxError) and _is_file(error.filename):
        return f" at {error.filename}:{error.lineno}"
    called = traceback.extract_tb(error.__traceback__)[1:]  # the first is the import above
    frames = [f for f in called if "importlib" not in f.filename and _is_file(f.filename)]
    own = [f for f in frames if f.filename == frames[0].filename or _is_here(f.filename)]
    return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""


def _is_file(name: str | None) -> bool:
    return name is not None and Path(name).is_file()


def _is_here(name: str) -> bool:
    """Return whether a file is below the current folder, and not in an environment there."""
    path = Path(name).resolve()
    return path.is_relative_to(Path.cwd()) and "site-packages" not in path.parts


def _attribute(module: ModuleType, holder: Any, name: str, target: str) -> Any:
    try:
        return getattr(holder, name)
    except AttributeError:
        near = hint(name, [n for n in dir(holder) if not n.startswith("_")])
        raise ConfigurationError(f"{target}: {holder_name(holder)} has no {name!r}{near or _instead(module)}") from None


def holder_name(holder: Any) -> str:
    """Return a description of the object that lacks an attribute."""
    return f"module {holder.__name__!r}" if isinstance(holder, ModuleType) else type(holder).__name__


def _apps(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, Holdfast)]


def _as_in(module: ModuleType) -> str:
    return f", as in {module.__name__}:{(_apps(module) or ['hf'])[0]}"


def _instead(module: ModuleType) -> str:
    found = _apps(module)
    return f"; did you mean {module.__name__}:{found[0]}?" if found else f"; {module.__name__} holds none"
