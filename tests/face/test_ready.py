"""`scribe ready` with engines that have keys: each is asked, none is paid, and what is wrong is said without saying the key."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commands import ready
from commands.main import app
from scribe_pipeline.engines import registry
from tests.houses import House
from tests.registries import file_entry, registered, registry_text, tiny_reader

KEY = "sk-secret-0123456789abcdef"
LOCAL = "transcriber local/PP-OCRv6_rec_small"


class Doors(ThreadingHTTPServer):
    """An endpoint with several doors, each a model's: /fine, /refused, /silent and so on, which answers as it is called."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Door)
        self.asked: list[tuple[str, str]] = []
        self.closing = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def entry(self, door: str, **values: Any) -> dict[str, Any]:
        """A registered model behind a door."""
        endpoint = f"http://127.0.0.1:{self.server_port}/{door}"
        return {"id": door, "kind": "transcriber", "engine": "openai", "endpoint": endpoint, "key_variable": "DOOR_KEY"} | values


class _Door(BaseHTTPRequestHandler):
    server: Doors

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        door = self.path.split("/")[1]
        if door == "silent":
            self.server.closing.wait(60)
            return
        key_fits = self.headers.get("Authorization") == f"Bearer {KEY}"
        status = {"gone": 404, "nowhere": 404, "broken": 500}.get(door, 401 if door == "refused" or not key_fits else 200)
        body: dict[str, Any] = {"id": door, "object": "model", "created": 1, "owned_by": "door"}
        if self.path == "/gone/models":
            status, body = 200, {"object": "list", "data": [body | {"id": "another"}]}
        if status != 200:
            body = {"error": {"message": f"what about {self.headers.get('Authorization')}?", "type": "x", "code": None}}
        answer = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def doors() -> Iterator[Doors]:
    server = Doors()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def commands_here(operator: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process work on the house."""
    for name in ("SCRIBE_HOME", "SCRIBE_DATABASE_URL", "SCRIBE_BLOB_URL"):
        monkeypatch.setenv(name, operator[name])
    monkeypatch.setenv("DOOR_KEY", KEY)


@contextmanager
def models(monkeypatch: pytest.MonkeyPatch, folder: Path, *entries: dict[str, Any]) -> Iterator[None]:
    (folder / "models.toml").write_text(registry_text(*entries))
    with registered(monkeypatch, folder / "models.toml"):
        yield


def name_in_context(house: House, provider: str, model: str) -> None:
    house.execute(
        "UPDATE contexts SET transcription_provider = :provider, transcription_model = :model WHERE name = 'letter'",
        provider=provider,
        model=model,
    )


def answer() -> tuple[int, dict[str, str]]:
    """The exit code and what is said of each part, in the table as in the document; the key is nowhere."""
    shown = CliRunner().invoke(app, ["ready", "--json"])
    table = CliRunner().invoke(app, ["ready"])
    assert KEY not in shown.output + table.output and "Traceback" not in shown.output + table.output
    assert shown.exit_code == table.exit_code
    states = json.loads(shown.stdout)
    width = max(map(len, states))
    assert table.stdout.splitlines() == [f"{name:<{width}}  {state}" for name, state in states.items()]
    return shown.exit_code, states


@pytest.mark.usefixtures("commands_here")
def test_an_engine_that_knows_the_key_and_the_model_is_ready(
    house: House, doors: Doors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R161: one question that costs nothing, and no line to read."""
    name_in_context(house, "openai", "fine")
    with models(monkeypatch, tmp_path, doors.entry("fine")):
        code, states = answer()
    assert (code, states["transcriber openai/fine"], states["model registry"], states[LOCAL]) == (0, "ready", "ready", "ready")
    assert doors.asked == [("GET", "/fine/models/fine")] * 2  # for the document and for the table


@pytest.mark.usefixtures("commands_here")
@pytest.mark.parametrize(
    ("door", "said"),
    [
        ("refused", "refused refused the key, which is that in DOOR_KEY"),
        ("gone", "gone: there is no model gone at its endpoint"),
        ("nowhere", "nowhere: its endpoint does not tell which models it has; see whether it is the right one"),
        ("broken", "broken failed"),
    ],
)
def test_an_engine_that_refuses_is_named(
    house: House, doors: Doors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, door: str, said: str
) -> None:
    """R21: which engine, why, and which variable has the key; what the provider said is not repeated, as it may tell the key."""
    name_in_context(house, "openai", door)
    with models(monkeypatch, tmp_path, doors.entry(door)):
        code, states = answer()
    assert (code, states.pop(f"transcriber openai/{door}")) == (1, said)
    assert set(states.values()) == {"ready"}


@pytest.mark.usefixtures("commands_here")
def test_a_missing_key_is_named(house: House, doors: Doors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R21: nobody is asked without it."""
    monkeypatch.delenv("DOOR_KEY")
    name_in_context(house, "openai", "fine")
    with models(monkeypatch, tmp_path, doors.entry("fine")):
        code, states = answer()
    assert (code, states["transcriber openai/fine"]) == (1, "the model fine needs a key: set DOOR_KEY")
    assert doors.asked == []


@pytest.mark.usefixtures("commands_here")
def test_one_that_hangs_does_not_hold_up_the_others(
    house: House, doors: Doors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R161: a call ends by itself; what does not is given up, and the whole table comes all the same."""
    monkeypatch.setattr(registry, "_PROBE_SECONDS", 1)
    name_in_context(house, "openai", "silent")
    shut = socket.create_server(("127.0.0.1", 0))
    port = shut.getsockname()[1]
    shut.close()
    nobody = {"id": "nobody", "kind": "transcriber", "engine": "ollama", "endpoint": f"http://127.0.0.1:{port}"}
    with models(monkeypatch, tmp_path, doors.entry("silent"), nobody):
        code, states = answer()
    assert (code, states["transcriber openai/silent"], states[LOCAL]) == (1, "silent did not answer in time", "ready")
    assert states["transcriber ollama/nobody"] == "nobody could not be reached, or broke off (no context names it)"


@pytest.mark.usefixtures("commands_here")
def test_what_cannot_be_ended_is_left_behind(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """R161: such as a name that is never resolved."""
    over = threading.Event()
    monkeypatch.setattr(ready, "_PATIENCE", 2)
    monkeypatch.setattr("scribe_pipeline.engines.probe_segmentor", lambda model: over.wait(60))
    code, states = answer()
    over.set()
    assert (code, states["segmentor kraken-blla"]) == (1, ready._NO_ANSWER)
    assert LOCAL in states


@pytest.mark.usefixtures("commands_here")
def test_models_that_no_context_names_are_listed_and_nothing_depends_on_them(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R166: what is registered can be seen to work before a context names it; files are read through."""
    entry = file_entry(tiny_reader(tmp_path / "hand.safetensors"))
    changed = file_entry(tiny_reader(tmp_path / "lines.safetensors"), kind="segmentor", sha256="0" * 64)
    with models(monkeypatch, tmp_path, entry, changed):
        code, states = answer()
        assert (code, states["transcriber kraken/hand"]) == (0, "ready (no context names it)")
        assert "is not the one registered" in states["segmentor lines"] and states["segmentor lines"].endswith("names it)")
        name_in_context(house, "kraken", "hand")
        house.execute("UPDATE contexts SET segmentation_model = 'lines' WHERE name = 'letter'")
        code, states = answer()
    assert (code, states["transcriber kraken/hand"]) == (1, "ready")
    assert states["segmentor lines"] == (
        f"the file of the model lines, {tmp_path}/lines.safetensors, is not the one registered: its SHA-256 differs"
    )


@pytest.mark.usefixtures("commands_here")
def test_no_name_and_no_reason_is_cut(house: House, doors: Doors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R21: which engine fails, and why, can be told in a narrow terminal and in a pipe."""
    monkeypatch.setenv("COLUMNS", "40")
    door = "a-model-of-the-reading-room-" * 8
    name_in_context(house, "openai", door)
    with models(monkeypatch, tmp_path, doors.entry(door, key_variable="A_KEY_THAT_NOBODY_HAS_SET")):
        code, states = answer()
    said = f"the model {door} needs a key: set A_KEY_THAT_NOBODY_HAS_SET"
    assert (code, states[f"transcriber openai/{door}"]) == (1, said)


@pytest.mark.usefixtures("commands_here")
def test_a_registry_that_is_wrong_is_a_part_that_is_not_ready(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R166: it is named once, with the entry at fault; what needs it is not known, and what needs no registry is ready."""
    name_in_context(house, "openai", "fine")
    house.execute("UPDATE contexts SET segmentation_model = 'lines' WHERE name = 'manuscript'")
    with models(monkeypatch, tmp_path, {"id": "fine", "kind": "transcriber", "engine": "openai", "api_key": KEY}):
        code, states = answer()
    assert (code, states.pop("model registry")) == (
        1,
        f"SCRIBE_MODELS_FILE, {tmp_path}/models.toml, entry 1: api_key: there is no such field",
    )
    needing = [states.pop(name) for name in ("transcriber openai/fine", "segmentor lines")]
    assert needing == ["not known without the model registry"] * 2
    assert set(states.values()) == {"ready"}


@pytest.mark.usefixtures("commands_here")
def test_a_folder_without_the_scans_is_not_ready(house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R54: there are images, and where their files should be is nothing: it is another folder, or not mounted; none is made."""
    house.image()
    away = tmp_path / "not mounted"
    monkeypatch.setenv("SCRIBE_BLOB_URL", str(away))
    code, states = answer()
    problem = "the place for scans is empty, and should not be: is SCRIBE_BLOB_URL right, and its disk mounted?"
    assert (code, states["blob store"], away.exists()) == (1, problem, False)
    monkeypatch.setenv("SCRIBE_BLOB_URL", house.store_url)
    assert answer()[1]["blob store"] == "ready"
