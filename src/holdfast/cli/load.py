"""Loads an application given as MODULE:ATTRIBUTE, of Holdfast or of Celery, with errors that suggest the right one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.client import Holdfast
from holdfast.client.database import Database
from holdfast.errors import ConfigurationError, hint


@dataclass(frozen=True, slots=True)
class Kind:
    """What a target should be.

    example: a target, for messages. submodule: where a package has it if not in itself. fits: whether an object is one.
    """

    name: str
    example: str
    submodule: str | None
    fits: Callable[[Any], bool]


def _is_celery(value: Any) -> bool:
    """Return whether this is a Celery application. Celery need not be installed, and no proxy is evaluated."""
    return any(
        each.__name__ == "Celery" and each.__module__.partition(".")[0] == "celery" for each in type(value).__mro__
    )


HOLDFAST = Kind("Holdfast application", "app:hf", None, lambda value: isinstance(value, Holdfast))
CELERY = Kind("Celery application", "proj.celery:app", "celery", _is_celery)


def load_app(target: str) -> Holdfast:
    """Return the application; the current folder is searched first."""
    module, found = load_object(target)
    if not isinstance(found, Holdfast):
        raise wrong_type(target, module, found)
    return found


def wrong_type(target: str, module: ModuleType, found: Any, kind: Kind = HOLDFAST) -> ConfigurationError:
    """Return the error for a target that is not of the kind asked for."""
    return ConfigurationError(
        f"{target} is of type {type(found).__name__}, not a {kind.name}{_instead(module, kind, 'holds none')}"
    )


def load_object(target: str, kind: Kind = HOLDFAST) -> tuple[ModuleType, Any]:
    """Return the module and the object that MODULE:ATTRIBUTE names."""
    module_name, _, attribute = target.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not module_name:
        check_target(target, kind)
    module = _import(module_name)
    if not attribute:
        raise ConfigurationError(f"{target!r} names no attribute; write MODULE:ATTRIBUTE{_as_in(module, kind)}")
    found: Any = module
    for name in attribute.split("."):
        found = _attribute(module, found, name, target, kind)
    return module, found


def check_target(target: str, kind: Kind = HOLDFAST) -> None:
    """Raise ConfigurationError unless the target names a module and an attribute. Nothing is imported."""
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise ConfigurationError(f"{target!r} names no module; write MODULE:ATTRIBUTE, as in {kind.example}")
    if not attribute:
        example = f"{module_name}:{_default(kind)}"
        raise ConfigurationError(f"{target!r} names no attribute; write MODULE:ATTRIBUTE, as in {example}")


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


def _attribute(module: ModuleType, holder: Any, name: str, target: str, kind: Kind) -> Any:
    try:
        return getattr(holder, name)
    except AttributeError:
        pass
    inside, elsewhere = _in_module(module, kind), _in_submodule(module, kind)
    if elsewhere and not inside:
        raise ConfigurationError(f"no {kind.name} in {module.__name__}; try {elsewhere[0]}")
    near = hint(name, [n for n in dir(holder) if not n.startswith("_")])
    missing = f"{target}: {holder_name(holder)} has no {name!r}"
    raise ConfigurationError(f"{missing}{near or _instead(module, kind, f'holds no {kind.name}')}")


def holder_name(holder: Any) -> str:
    """Return a description of the object that lacks an attribute."""
    return f"module {holder.__name__!r}" if isinstance(holder, ModuleType) else type(holder).__name__


def _in_module(module: ModuleType, kind: Kind) -> list[str]:
    """Return the targets of this kind in a module."""
    return [f"{module.__name__}:{name}" for name, value in [*vars(module).items()] if kind.fits(value)]


def _in_submodule(module: ModuleType, kind: Kind) -> list[str]:
    """Return the targets in the submodule that packages keep theirs in; it is imported for this."""
    if kind.submodule is None or not hasattr(module, "__path__"):
        return []
    name = f"{module.__name__}.{kind.submodule}"
    return _in_module(_import(name), kind) if importlib.util.find_spec(name) else []


def _found(module: ModuleType, kind: Kind) -> list[str]:
    return _in_module(module, kind) or _in_submodule(module, kind)


def _default(kind: Kind) -> str:
    return kind.example.rpartition(":")[2]


def _as_in(module: ModuleType, kind: Kind) -> str:
    return f", as in {(_found(module, kind) or [f'{module.__name__}:{_default(kind)}'])[0]}"


def _instead(module: ModuleType, kind: Kind, nothing: str) -> str:
    """Return the end of a message: the target to use, or that the module has nothing of this kind."""
    found = _found(module, kind)
    return f"; did you mean {found[0]}?" if found else f"; {module.__name__} {nothing}"
