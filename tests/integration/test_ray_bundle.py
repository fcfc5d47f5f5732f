"""The bundle by which pdjob comes to nodes that lack it: it is whole, checked before it runs, and shared by all who use it. Needs no Ray."""

import concurrent.futures
import fcntl
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "launcher/ray"))
import bundle  # noqa: E402
from conftest import BIN  # noqa: E402

ELSEWHERE = "/no/such/pdjob"


def files_of(program):
    """As launcher/ray/own_files.cc names them."""
    lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [word for line in lines for word in line.split() if word.startswith("/")]
    return [("pdjob", program), *(("lib/" + os.path.basename(path), path) for path in paths)]


@pytest.fixture(scope="module")
def made():
    descriptors = [(name, os.open(path, os.O_RDONLY)) for name, path in files_of(BIN)]
    yield bundle.Bundle(descriptors)
    for _, descriptor in descriptors:
        os.close(descriptor)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pdjob/bundles"


def deliver(made, damage=lambda number, piece: piece):
    delivery = bundle.Delivery(made.manifest)
    try:
        for number in range(made.pieces()):
            delivery.take(damage(number, made.piece(number)))
        return delivery.finish()
    except Exception:
        delivery.drop()
        raise


def test_a_bundle_runs_with_its_own_libraries_and_loader_and_starts_itself(made, cache):
    assert bundle.find(made.manifest, ELSEWHERE) == ("", -1)
    program, lock = deliver(made)
    assert cache.stat().st_mode & 0o777 == 0o700 and pathlib.Path(program).parent.stat().st_mode & 0o777 == 0o700
    # Its own loader lists what it would load: all of it lies beside the program.
    loader = next((pathlib.Path(program).parent / "lib").glob("ld-*"))
    listed = subprocess.run([loader, "--list", program], capture_output=True, text=True, check=True).stdout
    assert {os.path.dirname(line.split(" => ")[1].split()[0]) for line in listed.splitlines() if " => /" in line} == {str(loader.parent)}
    child = subprocess.Popen([program, "agent", "--join", "127.0.0.1:1", "--key-fd", "0", "--name", "0", "--log-dir", cache.parent / "logs"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    child.stdin.write(b"k" * 32 + b"\n")
    child.stdin.flush()
    assert b"waiting for a launcher" in child.stdout.readline()
    maps = pathlib.Path(f"/proc/{child.pid}/maps").read_text()
    assert os.readlink(f"/proc/{child.pid}/exe") == program
    assert {os.path.dirname(line.split()[-1]) for line in maps.splitlines() if ".so" in line} == {str(loader.parent)}
    child.stdin.close()
    assert child.wait(20) == 0
    assert bundle.find(made.manifest, ELSEWHERE)[0] == program
    os.close(lock)


def test_an_installed_pdjob_of_the_same_bytes_is_used(made, cache):
    assert bundle.find(made.manifest, BIN) == (BIN, -1)
    other = cache.parent.parent / "other"
    other.write_bytes(pathlib.Path(BIN).read_bytes()[:-1] + b"x")
    assert bundle.find(made.manifest, str(other)) == ("", -1)


def test_a_damaged_bundle_is_refused_before_it_runs(made, cache):
    last = made.pieces() - 1
    damages = {
        "came damaged": lambda number, piece: piece[:-1] + bytes([piece[-1] ^ 1]) if number == 1 else piece,
        "did not come whole": lambda number, piece: piece[:-1] if number == last else piece,
        "more bytes came": lambda number, piece: piece + b"x" if number == last else piece,
    }
    for why, damage in damages.items():
        with pytest.raises(bundle.Damaged, match=why):
            deliver(made, damage)
        assert not list(cache.iterdir())


def test_a_kept_bundle_that_was_damaged_later_is_replaced(made, cache):
    program, lock = deliver(made)
    os.close(lock)
    library = next((pathlib.Path(program).parent / "lib").glob("libzmq*"))
    library.write_bytes(library.read_bytes()[:1000])
    assert bundle.find(made.manifest, ELSEWHERE) == ("", -1)
    assert not list(cache.iterdir())
    assert deliver(made)[0] == program


def test_many_deliver_the_same_at_once(made, cache):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: deliver(made), range(4)))
    assert len({program for program, _ in found}) == 1 and all(lock >= 0 for _, lock in found)
    assert [entry.name for entry in cache.iterdir()] == [bundle.bundle_name(made.manifest)]


def test_old_bundles_go_but_not_those_in_use(cache):
    folder = pathlib.Path(bundle.cache_folder())
    for age in range(6):
        (folder / f"{age}").mkdir()
        os.utime(folder / f"{age}", (1000 - age, 1000 - age))
    (folder / "new-abandoned").mkdir()
    os.utime(folder / "new-abandoned", (1000, 1000))
    (folder / "new-begun").mkdir()
    used = os.open(folder / "5", os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    bundle.remove_old(str(folder))
    assert {entry.name for entry in folder.iterdir()} == {"0", "1", "2", "5", "new-begun"}
    os.close(used)
    bundle.remove_old(str(folder))
    assert {entry.name for entry in folder.iterdir()} == {"0", "1", "2", "new-begun"}


@pytest.mark.parametrize("change", [
    {"machine": "vax"},
    {"files": [["lib/libc.so.6", 1, "00"]]},
    {"files": [["pdjob", 1, "00"], ["../../.bashrc", 1, "00"]]},
    {"files": [["pdjob", 1, "00"], ["lib/..", 1, "00"]]},
    {"files": [["pdjob", 1, "00"], ["pdjob", 1, "00"]]},
    {"files": [["pdjob", 0, "00"]]},
    {"files": [["pdjob", bundle.BUNDLE_BYTES_MAX + 1, "00"]]},
])
def test_a_manifest_that_is_no_bundle_is_refused(made, cache, change):
    with pytest.raises(bundle.Damaged):
        bundle.Delivery({**made.manifest, **change})


def test_a_cache_that_is_somebody_elses_link_is_refused(made, cache):
    cache.parent.mkdir()
    cache.symlink_to("/tmp")
    with pytest.raises(PermissionError, match="is not a folder of this user"):
        bundle.Delivery(made.manifest)
