"""What this host says of itself, as far as isolation depends on it."""

import os
import platform
from pathlib import Path

from forethought.tools.sandbox.inside import landlock

_SETTINGS = {
    "user namespaces, most": "/proc/sys/user/max_user_namespaces",
    "user namespaces for all (Debian)": "/proc/sys/kernel/unprivileged_userns_clone",
    "user namespaces restricted (Ubuntu)": (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    ),
    "security modules": "/sys/kernel/security/lsm",
}
_SECCOMP = {"0": "none", "1": "strict", "2": "a filter"}


def host_facts() -> dict[str, str]:
    """Each fact by its name: kernel, user, capabilities, Landlock, and what limits namespaces."""
    status = _status()
    version = landlock.version()
    facts = {
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "user": str(os.getuid()),
        "capabilities": status.get("CapEff", "unknown"),
        "seccomp on this process": _SECCOMP.get(status.get("Seccomp", ""), "unknown"),
        "Landlock": f"ABI {version}" if version else "none",
        "control groups": "v2"
        if Path("/sys/fs/cgroup/cgroup.controllers").exists()
        else "v1 or none",
    }
    for name, path in _SETTINGS.items():
        try:
            facts[name] = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
    return facts


def _status() -> dict[str, str]:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key: value.strip() for key, _, value in pairs}
