"""The package as pip makes it: a wheel, a source distribution, a clean environment, and its README, run as it stands."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile

import pytest

from conftest import ROOT

SOURCE = ROOT / "client/python"
BUILD = [sys.executable, "-m", "hatchling", "build"]
PIP = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]


def run(*words, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Of the source distribution, which must therefore hold everything."""
    folder = tmp_path_factory.mktemp("built")
    run(*BUILD, "--target", "sdist", "--directory", folder, cwd=SOURCE)
    (archive,) = folder.glob("*.tar.gz")
    run("tar", "-xzf", archive, "-C", folder)
    run(*BUILD, "--target", "wheel", "--directory", folder, cwd=archive.with_name(archive.name.removesuffix(".tar.gz")))
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_is_that_of_the_checkout(wheel, tmp_path):
    run(*BUILD, "--target", "wheel", "--directory", tmp_path, cwd=SOURCE)
    (direct,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(direct).namelist())
    assert names == set(zipfile.ZipFile(wheel).namelist())
    assert {"hyperserve/py.typed", "hyperserve/v1/hyperserve_pb2.py", "hyperserve/v1/hyperserve_pb2.pyi"} <= names
    sources = {str(path.relative_to(SOURCE)) for path in (SOURCE / "hyperserve").rglob("*.py")}
    assert sources <= names
    assert not subprocess.run(["git", "status", "--porcelain", "--ignored", "."], cwd=SOURCE, check=True,
                              capture_output=True, text=True).stdout.count("egg-info")


def test_the_stubs_run_with_the_oldest_grpcio_that_is_allowed(wheel):
    """Stubs refuse a grpcio that is older than the generator."""
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    allowed = re.search(r"^Requires-Dist: grpcio>=(\S+)$", metadata, re.MULTILINE)[1]
    (pinned,) = (one for one in tomllib.loads((SOURCE / "pyproject.toml").read_text())["build-system"]["requires"]
                 if one.startswith("grpcio-tools"))
    assert pinned == f"grpcio-tools=={allowed}.*"
    assert f"GRPC_GENERATED_VERSION = '{allowed}." in archive.read("hyperserve/v1/hyperserve_pb2_grpc.py").decode()


def test_a_clean_environment(wheel, daemon, tmp_path):
    """It takes its dependencies from the environment of this test, since tests use no network."""
    run("/usr/bin/python3", "-m", "venv", "--without-pip", tmp_path / "clean")
    python = tmp_path / "clean/bin/python"
    (site,) = (tmp_path / "clean/lib").glob("python*/site-packages")
    run(sys.executable, *PIP, "--target", site, wheel)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = ("import hyperserve, sys; print(hyperserve.__file__); "
               "print(hyperserve.Client(sys.argv[1]).sample('rings', 3, plan='euler:1').samples.shape)")
    file, shape = run(python, "-c", program, daemon.address, cwd=tmp_path).splitlines()
    assert pathlib.Path(file).is_relative_to(site) and shape == "(3, 2)"


def test_the_quick_start(daemon, monkeypatch, capsys):
    text = (SOURCE / "README.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(snippets) >= 2
    monkeypatch.chdir(ROOT)
    names = {}
    for snippet in snippets:
        for default, address in (("8500", daemon.address), ("8501", daemon.admin_address)):
            snippet = snippet.replace(f"127.0.0.1:{default}", address)
        exec(compile(snippet, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "(10000, 2) hyper_heun:2 4\n" in printed and "50000 of 50000" in printed and "nobody" in printed
    assert names["path"].shape == (1, 3, 2) and names["published"].generation > names["published"].previous_generation > 0
