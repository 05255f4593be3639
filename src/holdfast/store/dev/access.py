"""What the embedded server's account may enter and read, by access control lists."""

from __future__ import annotations

import functools
import operator
import os
import pwd
import shlex
import stat
import struct
from pathlib import Path

from holdfast.errors import ConfigurationError

OR_ELSE = "or set HOLDFAST_DSN to a server of yours"
_ACL = "system.posix_acl_access"
_ACL_USER, _ACL_MASK, _ACL_NO_ID = 2, 16, 0xFFFF_FFFF
_ACL_MASKED = (2, 4, 8)  # named users and groups, and the folder's group


def allow_search(folder: Path, account: pwd.struct_passwd) -> None:
    """Let only the server's account enter a folder, by an entry in its access control list."""
    if _may_search(folder, account):
        return
    try:
        os.setxattr(folder, _ACL, _acl_with_search(folder, account.pw_uid))
    except (OSError, AttributeError) as error:  # no support for access control lists
        raise ConfigurationError(
            f"postgresql runs as {account.pw_name} where we are root, and {account.pw_name} may not enter {folder} "
            f"({error}); use another folder, allow it with chmod o+x {shlex.quote(str(folder))}, {OR_ELSE}"
        ) from error


def _may_search(folder: Path, account: pwd.struct_passwd) -> bool:
    found = folder.stat()
    shift = 6 if found.st_uid == account.pw_uid else 3 if found.st_gid == account.pw_gid else 0
    if found.st_mode >> shift & 1:
        return True
    return (
        read_acl(folder).get((_ACL_USER, account.pw_uid), 0) & read_acl(folder).get((_ACL_MASK, _ACL_NO_ID), 0) & 1 == 1
    )


def read_acl(folder: Path) -> dict[tuple[int, int], int]:
    """Return a folder's access control list, or its mode, as permissions by tag and id."""
    try:
        entries = struct.iter_unpack("<HHI", os.getxattr(folder, _ACL)[4:])
        return {(tag, id_): permissions for tag, permissions, id_ in entries}
    except (OSError, AttributeError):
        mode = folder.stat().st_mode
        return {(tag, _ACL_NO_ID): mode >> shift & 7 for tag, shift in ((1, 6), (4, 3), (32, 0))}


def _acl_with_search(folder: Path, uid: int) -> bytes:
    found = read_acl(folder)
    mask = found.pop((_ACL_MASK, _ACL_NO_ID), 7)
    # The mask gains the search permission, so permissions that it denied are removed from the other entries.
    entries = {key: each & mask if key[0] in _ACL_MASKED else each for key, each in found.items()}
    entries[_ACL_USER, uid] = entries.get((_ACL_USER, uid), 0) | 1
    entries[_ACL_MASK, _ACL_NO_ID] = functools.reduce(
        operator.or_, (each for key, each in entries.items() if key[0] in _ACL_MASKED)
    )
    packed = (struct.pack("<HHI", tag, entries[tag, id_], id_) for tag, id_ in sorted(entries))
    return struct.pack("<I", 2) + b"".join(packed)


def allow_reading(tree: Path) -> None:
    """Let every account read a tree of programs."""
    for path in (tree, *tree.rglob("*")) if tree.exists() else ():
        mode = path.lstat().st_mode
        wanted = stat.S_IROTH | (stat.S_IXOTH if mode & 0o111 else 0)
        if not stat.S_ISLNK(mode) and mode & wanted != wanted:
            path.chmod(stat.S_IMODE(mode) | wanted)
