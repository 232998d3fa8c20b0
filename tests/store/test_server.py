"""The embedded PostgreSQL as a process: starts, races, crashes, identities, refusals. Not what is stored in it."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest

from scribe_pipeline.database.server import EmbeddedServer, binary
from scribe_pipeline.errors import Category, ScribeError

ROOT = os.geteuid() == 0
REPOSITORY = Path(__file__).parents[2]


def succeeds(*command: str | Path, user: int | None = None) -> bool:
    try:
        return subprocess.run(command, user=user, capture_output=True, cwd="/").returncode == 0
    except OSError:
        return False


def user_namespaces() -> bool:
    return succeeds("unshare", "-U", "--map-user=65534", "--map-group=65534", "true")


def nobody() -> int:
    """The user nobody, as whom root can run PostgreSQL here, or a skip."""
    if not ROOT:
        pytest.skip("only root can become another user")
    uid = pwd.getpwnam("nobody").pw_uid
    if not succeeds(binary("postgres"), "--version", user=uid):
        pytest.skip("the PostgreSQL programs lie where the user nobody cannot reach them")
    return uid


def postmaster(home: Path) -> int:
    return int((home / "data" / "postmaster.pid").read_text().split()[0])


def scalar(server: EmbeddedServer, query: str) -> object:
    with psycopg.connect(server.url("postgres")) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="scribe-server-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(tmp_path: Path, open_folder: Path) -> Path:
    return (tmp_path if not ROOT or user_namespaces() else open_folder) / "postgres"


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(home, durable=False)
    yield server
    server.stop()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_it_starts_answers_and_stops(server: EmbeddedServer, home: Path) -> None:
    assert not server.running()
    assert not server.stop()
    server.start()
    server.start()
    assert server.running()
    server.ensure_database("letters & more")
    server.ensure_database("letters & more")
    with psycopg.connect(server.url("letters & more")) as connection:
        assert connection.execute("SELECT current_database(), lower('ÄÉ')").fetchone() == ("letters & more", "äé")
    # Its own session: Ctrl-C in our terminal does not reach it.
    assert os.getsid(postmaster(home)) != os.getsid(0)
    assert all((home / name).stat().st_mode & 0o077 == 0 for name in ("data", "log", "password"))
    assert server.stop()
    assert not server.running()
    assert not server.stop()


def test_only_scram_over_the_loopback_interface_and_no_details_in_the_log(server: EmbeddedServer, home: Path) -> None:
    server.start()
    assert scalar(server, "SHOW listen_addresses") == "127.0.0.1"
    assert scalar(server, "SHOW unix_socket_directories") == ""
    assert scalar(server, "SHOW max_connections") == "200"
    assert scalar(server, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules") == "scram-sha-256"
    with psycopg.connect(server.url("postgres")) as connection:
        connection.execute("CREATE TEMP TABLE unique_names (name text PRIMARY KEY)")
        connection.execute("INSERT INTO unique_names VALUES (%s)", ["the secret"])
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO unique_names VALUES (%s)", ["the secret"])
    log = (home / "log").read_text()
    assert "unique_names_pkey" in log
    assert "the secret" not in log


def test_a_wrong_password_is_refused(server: EmbeddedServer, home: Path) -> None:
    server.start()
    password = (home / "password").read_text()
    assert len(password) >= 43
    for wrong in ("wrong", ""):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url("postgres").replace(password, wrong))


def test_no_secret_of_the_starter_lives_on_in_it(server: EmbeddedServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "key")
    monkeypatch.setenv("PGDATA", "/nowhere")
    server.start()
    assert scalar(server, "SHOW data_directory") == str(home / "data")
    try:
        environment = psutil.Process(postmaster(home)).environ()
    except psutil.AccessDenied:
        pytest.skip("root may not look into another user's process here")
    assert "GEMINI_API_KEY" not in environment


def test_six_processes_at_once_give_one_server(server: EmbeddedServer, home: Path) -> None:
    script = (
        "import pathlib, sys; from scribe_pipeline.database.server import EmbeddedServer; home = pathlib.Path(sys.argv[1]);"
        "server = EmbeddedServer(home, durable=False); server.start(); server.ensure_database('shared');"
        "print((home / 'data' / 'postmaster.pid').read_text().split()[0])"
    )
    command = [sys.executable, "-c", script, str(home)]
    # Output through pipes: a server that held them open would make communicate() wait for ever.
    starters = [
        subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(6)
    ]
    outputs = [starter.communicate(timeout=300)[0] for starter in starters]
    assert [starter.returncode for starter in starters] == [0] * 6, outputs
    assert {int(output) for output in outputs} == {postmaster(home)}
    assert server.running()


def test_committed_rows_survive_a_killed_postmaster(home: Path) -> None:
    server = EmbeddedServer(home)
    try:
        server.start()
        assert scalar(server, "SHOW fsync") == "on"
        with closing(psycopg.connect(server.url("postgres"), autocommit=True)) as client:
            client.execute("CREATE TABLE letters AS SELECT 'kept' AS text")
            first = postmaster(home)
            os.kill(first, signal.SIGKILL)
            server.start()
            assert scalar(server, "SELECT text FROM letters") == "kept"
            assert postmaster(home) != first
    finally:
        server.stop()


def test_a_half_made_data_folder_is_made_again(server: EmbeddedServer, home: Path) -> None:
    rest = home / "data.new"
    rest.mkdir(parents=True)
    (rest / "PG_VERSION").write_text("18\n")
    server.start()
    assert server.running()
    assert not rest.exists()


def test_a_stale_pid_file_that_names_a_living_stranger(
    server: EmbeddedServer, home: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    server.start()
    pid_file = home / "data" / "postmaster.pid"
    text = pid_file.read_text()
    assert server.stop()
    pid_file.write_text(text.replace(text.split()[0], str(sleeper.pid), 1))
    assert not server.running()
    assert not server.stop()
    server.start()
    assert postmaster(home) != sleeper.pid
    assert server.stop()
    assert sleeper.poll() is None


def test_a_stale_pid_file_that_names_another_folders_server(server: EmbeddedServer, home: Path) -> None:
    other = EmbeddedServer(home.with_name("other"), durable=False)
    try:
        other.start()
        server.start()
        assert server.stop()
        shutil.copy(home.with_name("other") / "data" / "postmaster.pid", home / "data" / "postmaster.pid")
        assert not server.stop()
        server.start()
        assert other.running()
        assert server.stop()
        assert other.running()
    finally:
        other.stop()


def test_a_taken_port_is_left_to_whoever_has_it(server: EmbeddedServer, home: Path) -> None:
    server.start()
    port = int((home / "port").read_text())
    server.stop()
    server.start()
    assert int((home / "port").read_text()) == port
    server.stop()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        assert not server.running()
        server.start()
        assert int((home / "port").read_text()) != port
        assert scalar(server, "SELECT 1") == 1


def test_data_of_another_version_or_without_its_password_is_refused(server: EmbeddedServer, home: Path) -> None:
    server.start()
    server.stop()
    version = home / "data" / "PG_VERSION"
    right = version.read_text()
    version.write_text("9\n")
    with pytest.raises(ScribeError, match="is that of PostgreSQL 9") as caught:
        server.start()
    assert caught.value.category is Category.FAILED_PRECONDITION
    version.write_text(right)
    (home / "password").unlink()
    with pytest.raises(ScribeError, match="no readable file password") as caught:
        server.start()
    assert caught.value.category is Category.FAILED_PRECONDITION


def test_a_server_that_never_comes_up_is_given_up_with_its_log_named(
    server: EmbeddedServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start()
    server.stop()
    with open(home / "data" / "postgresql.conf", "a") as settings:
        settings.write("no_such_setting = 1\n")
    monkeypatch.setattr("scribe_pipeline.database.server._DEADLINE_SECONDS", 2)
    with pytest.raises(ScribeError) as caught:
        server.start()
    assert caught.value.category is Category.UNAVAILABLE
    assert str(home / "log") in caught.value.message
    assert "no_such_setting" in (home / "log").read_text()


def test_nothing_was_started_yet(server: EmbeddedServer) -> None:
    with pytest.raises(ScribeError) as caught:
        server.url("postgres")
    assert caught.value.category is Category.FAILED_PRECONDITION


def test_root_uses_nobody_where_nobody_can_reach_and_a_user_namespace_elsewhere(open_folder: Path) -> None:
    uid = nobody()
    home = open_folder / "postgres"
    server = EmbeddedServer(home, durable=False)
    try:
        server.start()
        assert (home / "data").stat().st_uid == uid
        server.ensure_database("kept")
        server.stop()
        if not user_namespaces():
            pytest.skip("unshare -U is refused here")
        open_folder.chmod(0o700)
        server.start()
        assert {path.stat().st_uid for path in (home / "data").rglob("*")} == {0}
        with psycopg.connect(server.url("kept")):
            pass
        server.stop()
        open_folder.chmod(0o755)
        server.start()
        assert (home / "data").stat().st_uid == uid
        with psycopg.connect(server.url("kept")):
            pass
    finally:
        server.stop()


def test_root_under_a_closed_folder(tmp_path: Path) -> None:
    if not ROOT or not user_namespaces():
        pytest.skip("needs root and unshare -U")
    tmp_path.chmod(0o700)
    server = EmbeddedServer(tmp_path / "postgres", durable=False)
    try:
        server.start()
        assert scalar(server, "SELECT 1") == 1
        assert (tmp_path / "postgres" / "data").stat().st_uid == 0
    finally:
        server.stop()


def test_a_normal_user_and_then_root_on_the_same_folder(open_folder: Path) -> None:
    uid = nobody()
    os.chown(open_folder, uid, -1)
    home = open_folder / "postgres"
    # The interpreter may lie where only root can go, so it becomes the other user once everything is imported.
    script = (
        "import os, pathlib, sys, encodings.idna, psycopg; from scribe_pipeline.database.server import EmbeddedServer;"
        "os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]));"
        "server = EmbeddedServer(pathlib.Path(sys.argv[1]), durable=False); server.start(); server.ensure_database('mine');"
        "print(psycopg.connect(server.url('mine')).execute('SELECT 1').fetchone(), server.stop(), server.start())"
    )
    server = EmbeddedServer(home, durable=False)
    try:
        ran = subprocess.run([sys.executable, "-c", script, home, str(uid)], cwd=REPOSITORY, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (0, "(1,) True None\n"), ran.stderr
        assert server.running()
        assert server.stop()
        server.start()
        assert {path.stat().st_uid for path in home.rglob("*")} == {uid}
    finally:
        server.stop()


def test_it_outlives_a_killed_starter(server: EmbeddedServer, home: Path) -> None:
    script = (
        "import os, pathlib, sys; from scribe_pipeline.database.server import EmbeddedServer;"
        "EmbeddedServer(pathlib.Path(sys.argv[1]), durable=False).start(); os.killpg(0, 9)"
    )
    ran = subprocess.run([sys.executable, "-c", script, home], cwd=REPOSITORY, start_new_session=True, capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    time.sleep(0.1)
    assert server.running()
