"""Brings pdjob to nodes that lack it: itself, its libraries and their loader, in pieces.

Both ends are here. The launcher's end (`Bundle`) reads the files that the launcher was started from. The node's end (`find`, `Delivery`) keeps
bundles in a folder that only the job's user can read, one folder for each content: `CACHE/SHA-256/{manifest.json, pdjob, lib/}`. Needs no Ray.

A folder appears there by one rename, after the digests of all its files were checked. Whoever uses one holds a shared lock on it. So several jobs
may bring, use and remove bundles at the same time, also on a file system that several nodes share.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile
import time

PIECE_BYTES = 8 * 1024 * 1024
BUNDLE_BYTES_MAX = 4 * 1024 * 1024 * 1024
BUNDLE_FILES_MAX = 256
BUNDLES_KEPT = 3  # Of those that nobody uses.
UNFINISHED_SECONDS = 60  # A delivery that nobody holds has failed, unless it has just begun.
PROGRAM = "pdjob"
FILE_NAME = re.compile(r"pdjob|lib/[A-Za-z0-9_][A-Za-z0-9_.+-]*")
RUN_SECONDS = 30


class Damaged(Exception):
    """What came, or what is kept, is not what its digest says."""


def digest_of(pieces):
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def pieces_of(descriptor, size):
    for at in range(0, size, PIECE_BYTES):
        yield os.pread(descriptor, min(PIECE_BYTES, size - at), at)


# ---- The launcher's end


class Bundle:
    """`files`: [(name in the bundle, descriptor)]. The descriptors stay open, so a package that is upgraded meanwhile changes nothing."""

    def __init__(self, files):
        self.files = [(name, descriptor, os.fstat(descriptor).st_size) for name, descriptor in files]
        table = [[name, size, digest_of(pieces_of(descriptor, size))] for name, descriptor, size in self.files]
        self.manifest = {"machine": platform.machine(), "files": table}
        self.size = sum(size for _, size, _ in table)
        check_manifest(self.manifest)

    def pieces(self):
        """Returns how many pieces there are."""
        return -(-self.size // PIECE_BYTES)

    def piece(self, number):
        """Returns a piece of all files, one after the other."""
        skip, want, found = number * PIECE_BYTES, PIECE_BYTES, []
        for _, descriptor, size in self.files:
            if skip < size and want:
                found.append(os.pread(descriptor, min(want, size - skip), skip))
                want -= len(found[-1])
            skip = max(0, skip - size)
        return b"".join(found)


# ---- The node's end


def check_manifest(manifest):
    files = manifest["files"]
    if not 0 < len(files) <= BUNDLE_FILES_MAX or sum(size for _, size, _ in files) > BUNDLE_BYTES_MAX:
        raise Damaged(f"a bundle has at most {BUNDLE_FILES_MAX} files and {BUNDLE_BYTES_MAX} bytes")
    names = [name for name, size, _ in files if size > 0]
    if len(set(names)) != len(files) or PROGRAM not in names or not all(map(FILE_NAME.fullmatch, names)):
        raise Damaged(f"no names of a bundle: {names}")
    if manifest["machine"] != platform.machine():
        raise Damaged(f"this pdjob is for {manifest['machine']}, and the node is a {platform.machine()}")


def bundle_name(manifest):
    return digest_of([json.dumps(manifest, sort_keys=True).encode()])


def cache_folder():
    """Returns the folder of this user's bundles, which it makes."""
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "pdjob/bundles")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    found = os.lstat(cache)
    if found.st_uid != os.geteuid() or not os.path.isdir(cache) or os.path.islink(cache):
        raise PermissionError(f"{cache} is not a folder of this user: remove it")
    os.chmod(cache, 0o700)
    return cache


@contextlib.contextmanager
def locked(folder, how):
    """Yields a descriptor that holds the lock of the folder, or None: there is no such folder, or others hold it. Closes it after an error."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(descriptor, how)
        there = os.path.exists(folder) and os.path.samestat(os.stat(folder), os.fstat(descriptor))
    except BlockingIOError:
        there = False
    if not there:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    except BaseException:
        os.close(descriptor)
        raise


def check_file(path, size, digest):
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size != size or digest_of(pieces_of(file.fileno(), size)) != digest:
            raise Damaged(f"{path} has another digest than its bundle says")


def runs(program):
    """Returns why the program does not run here; empty: it does."""
    try:
        ran = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=RUN_SECONDS)
        return "" if ran.returncode == 0 else (ran.stderr or f"exit code {ran.returncode}").strip()[-500:]
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


def set_aside(folder):
    aside = tempfile.mkdtemp(prefix="old-", dir=os.path.dirname(folder))
    os.rename(folder, os.path.join(aside, "bundle"))
    shutil.rmtree(aside, ignore_errors=True)


def find(manifest, program):
    """Returns (path of the pdjob of this manifest on this node, descriptor that keeps it there). The descriptor is -1 for `program`, which is a
    place where pdjob may be installed. The path is empty: it is not here."""
    wanted = {name: (size, digest) for name, size, digest in manifest["files"]}
    with contextlib.suppress(OSError, Damaged):
        check_file(program, *wanted[PROGRAM])
        if not runs(program):
            return program, -1
    folder = os.path.join(cache_folder(), bundle_name(manifest))
    with locked(folder, fcntl.LOCK_SH) as lock:
        if lock is None:
            return "", -1
        try:
            with open(os.path.join(folder, "manifest.json")) as text:
                for name, size, digest in json.load(text)["files"]:
                    check_file(os.path.join(folder, name), size, digest)
        except (OSError, ValueError, KeyError, Damaged):
            set_aside(folder)  # Half a file, after a power failure.
            os.close(lock)
            return "", -1
        os.utime(folder)
        return os.path.join(folder, PROGRAM), lock


class Delivery:
    """A bundle that is on its way to this node. Take all pieces, and finish."""

    def __init__(self, manifest):
        check_manifest(manifest)
        self.manifest, self.cache = manifest, cache_folder()
        remove_old(self.cache)
        self.folder = tempfile.mkdtemp(prefix="new-", dir=self.cache)
        self.lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        os.mkdir(os.path.join(self.folder, "lib"), 0o700)
        self.waiting = list(manifest["files"])
        self.file, self.left, self.digest = None, 0, None

    def take(self, piece):
        piece = memoryview(piece)
        while len(piece):
            if self.file is None:
                if not self.waiting:
                    raise Damaged("more bytes came than the bundle has")
                name, self.left, self.digest = *self.waiting[0][:2], hashlib.sha256()
                self.file = open(os.path.join(self.folder, name), "xb")
                os.fchmod(self.file.fileno(), 0o700)
            now = piece[:self.left]
            self.file.write(now)
            self.digest.update(now)
            self.left -= len(now)
            piece = piece[len(now):]
            if not self.left:
                self.close_file()

    def close_file(self):
        name, _, digest = self.waiting.pop(0)
        self.file.close()
        self.file = None
        if self.digest.hexdigest() != digest:
            raise Damaged(f"{name} came damaged")

    def finish(self):
        """Returns as find() does. Nothing of the bundle runs before."""
        if self.waiting:
            raise Damaged(f"{self.waiting[0][0]} did not come whole")
        target = os.path.join(self.cache, bundle_name(self.manifest))
        program = os.path.join(self.folder, PROGRAM)
        set_interpreter(program, os.path.join(target, "lib"))
        with open(program, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            kept = [[PROGRAM, size, digest_of(pieces_of(file.fileno(), size))]]
        kept += [entry for entry in self.manifest["files"] if entry[0] != PROGRAM]
        with open(os.path.join(self.folder, "manifest.json"), "x") as file:
            json.dump({"files": kept}, file)
        try:
            os.rename(self.folder, target)
        except OSError:  # Another delivery was faster.
            self.drop()
        else:
            os.close(self.lock)
        program, lock = find(self.manifest, "")
        if why := (runs(program) if program else "its files changed at once"):
            raise RuntimeError(f"pdjob was brought to {target}, and does not run there: {why}")
        return program, lock

    def drop(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


def remove_old(cache):
    """Removes all bundles that nobody uses, besides the last few, and what failed deliveries left."""
    ages = {}
    for name in os.listdir(cache):
        with contextlib.suppress(OSError):
            ages[os.path.join(cache, name)] = time.time() - os.stat(os.path.join(cache, name)).st_mtime
    whole = sorted((age, path) for path, age in ages.items() if "-" not in os.path.basename(path))
    broken = [path for path, age in ages.items() if "-" in os.path.basename(path) and age > UNFINISHED_SECONDS]
    for path in [path for _, path in whole[BUNDLES_KEPT:]] + broken:
        with locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB) as lock:
            if lock is not None:
                set_aside(path)
                os.close(lock)


def set_interpreter(program, folder):
    """Makes the kernel start the program with the loader of this folder. The program finds its libraries in its own `lib/` (launcher/cli).

    An ELF file says in a program header where the path of its loader is. The new path goes to the end of the file.
    """
    with open(program, "r+b") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise Damaged(f"{program} is not a 64-bit ELF program")
        first, = struct.unpack_from("<Q", head, 0x20)
        size, count = struct.unpack_from("<HH", head, 0x36)
        for at in range(first, first + size * count, size):
            file.seek(at)
            kind, flags, offset, virtual, physical, length, in_memory, align = struct.unpack("<IIQQQQQQ", file.read(56))
            if kind != 3:  # PT_INTERP
                continue
            file.seek(offset)
            loader = os.path.join(folder, os.path.basename(file.read(length).rstrip(b"\0").decode()))
            text = loader.encode() + b"\0"
            end = file.seek(0, os.SEEK_END)
            file.write(text)
            file.seek(at)
            file.write(struct.pack("<IIQQQQQQ", kind, flags, end, virtual, physical, len(text), in_memory, align))
            return
        raise Damaged(f"{program} names no loader")
