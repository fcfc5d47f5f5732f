"""Control groups of the kernel, for tests that limit a process's cores or memory. They need a machine that lets them make groups."""

import contextlib
import functools
import os
import pathlib
import time
import uuid


def mounts():
    """Each controller's folder, and whether it is of version 2."""
    found = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        folder = pathlib.Path(before.split(" ")[4])
        if kind == "cgroup2" and (folder / "cgroup.controllers").exists():
            for controller in (folder / "cgroup.controllers").read_text().split():
                found.setdefault(controller, (folder, True))
        elif kind == "cgroup":
            for controller in options.split(","):
                found[controller] = (folder, False)
    return found


class Group:
    """A control group. `enter` moves the calling process into it, and is meant for preexec_fn."""

    def __init__(self, cpus=None, memory=None):
        self.name = f"/pdjob-test-{uuid.uuid4().hex[:8]}"
        self.folders = []
        try:
            if cpus is not None:
                folder, v2 = self._make("cpu")
                if v2:
                    (folder / "cpu.max").write_text(f"{round(cpus * 100000)} 100000")
                else:
                    (folder / "cpu.cfs_period_us").write_text("100000")
                    (folder / "cpu.cfs_quota_us").write_text(str(round(cpus * 100000)))
            if memory is not None:
                folder, v2 = self._make("memory")
                (folder / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(memory))
        except BaseException:
            self.remove()
            raise

    def _make(self, controller):
        mount, v2 = mounts()[controller]
        if v2:
            (mount / "cgroup.subtree_control").write_text(f"+{controller}")
        folder = mount / self.name[1:]
        if folder not in self.folders:
            folder.mkdir()
            self.folders.append(folder)
        return folder, v2

    def enter(self):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        """Its processes must have ended. The kernel may take a moment to let go of the last one."""
        for folder in self.folders:
            for last in [False] * 100 + [True]:
                try:
                    folder.rmdir()
                    break
                except OSError:
                    if last:
                        raise
                    time.sleep(0.1)


@contextlib.contextmanager
def limits(cpus=None, memory=None):
    group = Group(cpus, memory)
    try:
        yield group
    finally:
        group.remove()


@functools.cache
def unavailable():
    """Says why this machine has no control groups for tests; empty: it has."""
    try:
        with limits(cpus=1, memory=1 << 30):
            return ""
    except (OSError, KeyError) as error:
        return f"no control groups can be made here: {error!r}"
