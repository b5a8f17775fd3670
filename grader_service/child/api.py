"""The invariant ``public_api_unchanged``: griffe reads both versions of a package; nothing is imported or run."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from typing import Any

from grader_service.child.results import Result
from grader_service.child.workspace import Broken, Unusable, Workspace

_HARMLESS = frozenset(
    {"ATTRIBUTE_CHANGED_VALUE", "ATTRIBUTE_CHANGED_TYPE", "PARAMETER_CHANGED_DEFAULT", "RETURN_CHANGED_TYPE"}
)
"""Changes that leave every call valid: values, annotations, defaults (``x=[]`` to ``x=None`` is a classic repair)."""


def check_public_api(spec: dict[str, Any], world: Workspace) -> Result:
    """Evaluate ``public_api_unchanged``: every public name is still there and can be called as before."""
    import griffe

    logging.disable(logging.CRITICAL)
    world.lay()
    package = spec["package"].rstrip("/")
    for place in {package, package.removesuffix(".py")}:
        world.bring_at(place)
    expected = f"the public names of {package} with compatible signatures"
    try:
        old = _load(griffe, world.pristine, package, _place(world))
        _publish_names(old, old.name)
    except (Unusable, griffe.GriffeError, SyntaxError) as error:
        msg = f"the pristine package {package} cannot be read: {error}"
        raise Broken(msg) from error
    try:
        new = _load(griffe, world.root, package, _place(world))
    except (Unusable, griffe.GriffeError, SyntaxError, ValueError) as error:
        return Result(False, expected, f"{package} cannot be read: {error}", (f"{package} cannot be read: {error}",))
    breakages = [b for b in griffe.find_breaking_changes(old, new) if b.kind.name not in _HARMLESS]
    lines = [f"{b.obj.path}: {b.kind.value}{_detail(b)}" for b in breakages]
    return Result(not lines, expected, "unchanged" if not lines else f"{len(lines)} incompatible changes", tuple(lines))


def _place(world: Workspace) -> str:
    return tempfile.mkdtemp(dir=os.path.dirname(world.root))  # noqa: PTH120 - where the disk is sized for the workspace


def _publish_names(module: Any, package: str) -> None:
    """Count what an ``__init__.py`` takes from its own package as public: there packages offer their names, often without ``__all__``."""
    for member in module.members.values():
        if member.is_alias:
            if module.is_init_module and not module.exports and not member.name.startswith("_"):
                member.public = member.target_path.startswith(f"{package}.") or None
        elif member.is_module:
            _publish_names(member, package)


def _detail(breakage: Any) -> str:
    named = getattr(breakage.old_value, "name", None) or getattr(breakage.new_value, "name", None)
    return f" ({named})" if named and named != breakage.obj.name else ""


def _load(griffe: Any, root: str, package: str, place: str) -> Any:
    """Load from a folder that holds the package's ``.py`` files and nothing else: no ``.pth``, stub or neighbour can answer for it."""
    source = f"{root}/{package}"
    name = os.path.basename(source).removesuffix(".py")  # noqa: PTH119
    if source.endswith(".py") and os.path.isdir(source.removesuffix(".py")):  # noqa: PTH112
        source = source.removesuffix(
            ".py"
        )  # a module that grew into a package is imported as before, and before a file beside it
    if os.path.islink(source) or not os.path.exists(source):  # noqa: PTH110, PTH114
        msg = "there is no such folder or module"
        raise Unusable(msg)
    if os.path.isfile(source):  # noqa: PTH113
        shutil.copyfile(source, f"{place}/{name}.py")
    else:
        _copy_sources(source, f"{place}/{name}")
    return griffe.load(
        name,
        search_paths=[place],
        allow_inspection=False,
        try_relative_path=False,
        resolve_aliases=True,
        resolve_external=False,
    )


def _copy_sources(source: str, target: str) -> None:
    for folder, folders, files in os.walk(source):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        inside = target + folder[len(source) :]
        os.makedirs(inside, exist_ok=True)  # noqa: PTH103
        for file in sorted(files):
            path = f"{folder}/{file}"
            if file.endswith(".py") and os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
                shutil.copyfile(path, f"{inside}/{file}")
