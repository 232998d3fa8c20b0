"""The administrator's registry of models: what an entry may say, what follows from it, and how a file that is wrong is refused."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from commands import main
from scribe_pipeline.engines import check_transcriber, registry
from scribe_pipeline.engines.models import BUILT_IN_SEGMENTORS, Model, registered_models
from scribe_pipeline.errors import Category, ScribeError
from tests.conftest import ROOT
from tests.registries import forget, registered, registry_text

KEY = "sk-secret-0123456789"
OPENAI: dict[str, Any] = {"id": "gpt", "kind": "transcriber", "engine": "openai"}
KRAKEN: dict[str, Any] = {"id": "hand", "kind": "transcriber", "engine": "kraken", "location": "hand.mlmodel", "sha256": "0" * 64}


def read(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str | bytes) -> list[Model]:
    """What a process reads of a file with this text."""
    file = folder / "models.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with registered(monkeypatch, file):
        return list(registered_models().values())


def test_the_sample_is_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """R161, R166: what the documentation shows is taken as it stands, and has each engine."""
    with registered(monkeypatch, ROOT / "docs" / "models.toml"):
        models = registered_models()
    assert {engine for _, engine, _ in models} == {"gemini", "openai", "glm-ocr", "ollama", "kraken"}
    assert {kind for kind, _, _ in models} == {"transcriber", "segmentor"}
    assert models["transcriber", "kraken", "chancery-hand"].location == ROOT / "docs" / "models" / "chancery-hand.mlmodel"


def test_without_a_file_there_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with registered(monkeypatch, None):
        assert registered_models() == {}


def test_the_file_is_found_from_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R166: in a person's home or beside where one works, and its models' files beside it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.toml").write_text(registry_text(KRAKEN, KRAKEN | {"id": "other", "location": "~/other.mlmodel"}))
    for file in ("~/models.toml", "models.toml"):
        with registered(monkeypatch, Path(file)):
            places = [model.location for model in registered_models().values()]
        assert places == [tmp_path / "hand.mlmodel", tmp_path / "other.mlmodel"]


def test_every_field_is_taken_as_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R161: address, key and limits are the administrator's."""
    remote = OPENAI | {"name": "gpt-5", "endpoint": "https://models.example:8443/v1", "key_variable": "OUR_KEY"}
    remote |= {"max_request_bytes": 1, "max_response_bytes": 2, "max_image_side": 32, "max_output_tokens": 4}
    local = KRAKEN | {"kind": "segmentor", "sha256": "0123456789abcdef" * 4}
    models = read(monkeypatch, tmp_path, registry_text(remote, local))
    assert models[0].model_dump(exclude_none=True) == remote
    assert models[1].location == tmp_path / "hand.mlmodel" and models[1].sha256 == local["sha256"]


@pytest.mark.parametrize(
    ("entry", "endpoint", "key_variable"),
    [
        ({"engine": "gemini"}, "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
        ({"engine": "openai"}, "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ({"engine": "ollama"}, "http://127.0.0.1:11434", None),
        ({"engine": "glm-ocr", "endpoint": "http://gpu:8000/v1"}, "http://gpu:8000/v1", None),
        ({"engine": "openai", "key_variable": "OUR_KEY"}, "https://api.openai.com/v1", "OUR_KEY"),
        # the vendor's key is not for somebody else
        ({"engine": "openai", "endpoint": "http://gpu:8000/v1"}, "http://gpu:8000/v1", None),
        ({"engine": "gemini", "endpoint": "http://gpu:8000", "key_variable": "OUR_KEY"}, "http://gpu:8000", "OUR_KEY"),
    ],
)
def test_what_an_entry_does_not_say(entry: dict[str, Any], endpoint: str, key_variable: str | None) -> None:
    """R161: an engine is asked at its own address with its own key, unless the entry says where."""
    model = Model.model_validate({"id": "m", "kind": "transcriber"} | entry)
    assert (model.name, model.endpoint, model.key_variable) == ("m", endpoint, key_variable)
    limits = (model.max_request_bytes, model.max_response_bytes, model.max_image_side, model.max_output_tokens)
    assert limits == (8 * 1024**2, 1024**2, 4096, 4096)


_NO_ENDPOINT = "entry 1: endpoint: has to be an address with http"
_WRONG: dict[str, tuple[str | bytes, str]] = {
    "no TOML": ("[[model", "is no TOML: "),
    "no text": (b"\xff\xfe", "is no TOML: "),
    "something else": ('title = "models"\n' + registry_text(OPENAI), r"has something else than \[\[model\]\] entries"),
    "one table": ('[model]\nid = "a"', r"has something else than \[\[model\]\] entries"),
    "no table": ("model = [1]", "entry 1: "),
    "a number of 5,000 digits": (f"{registry_text(OPENAI)}\nmax_output_tokens = {'9' * 5000}", "is no TOML: "),
    "nested too deep": (f"model = {'[' * 50_000}", "is no TOML: "),
    "unknown field": (registry_text(OPENAI, OPENAI | {"id": "b", "api_key": KEY}), "entry 2: api_key: there is no such field"),
    "twice": (registry_text(OPENAI, KRAKEN, OPENAI | {"name": "other"}), "gpt of openai is there twice"),
    "no id": (registry_text({"kind": "transcriber", "engine": "openai"}), "entry 1: id: is missing"),
    "strange id": (registry_text(OPENAI | {"id": "a b"}), "entry 1: id: has to be letters, digits and"),
    "no engine": (registry_text({"id": "a", "kind": "transcriber"}), "entry 1: engine: is missing"),
    "a list of engines": (registry_text(OPENAI | {"engine": ["x"]}), "entry 1: engine: "),
    "no name": (registry_text(OPENAI | {"name": ""}), "entry 1: name: "),
    "a name with a blank": (registry_text(OPENAI | {"name": "gpt 5"}), "entry 1: name: has to be .* without a blank"),
    "strange engine": (registry_text(OPENAI | {"engine": "oracle"}), "entry 1: engine: .*'kraken'"),
    "strange kind": (registry_text(OPENAI | {"kind": "reader"}), "entry 1: kind: "),
    "segments by chat": (registry_text(OPENAI | {"kind": "segmentor"}), "entry 1: openai reads lines and finds none"),
    "short hash": (registry_text(KRAKEN | {"sha256": "0" * 63}), "entry 1: sha256: "),
    "hash in capitals": (registry_text(KRAKEN | {"sha256": "A" * 64}), "entry 1: sha256: has to be what sha256sum says"),
    "no location": (
        registry_text({k: v for k, v in KRAKEN.items() if k != "location"}),
        "entry 1: a model of kraken needs its loc",
    ),
    "no hash": (registry_text({k: v for k, v in KRAKEN.items() if k != "sha256"}), "entry 1: a model of kraken needs its loc"),
    "nobody's home": (registry_text(KRAKEN | {"location": "~no-such-user/x"}), "entry 1: location: there is no such user"),
    "kraken at an address": (registry_text(KRAKEN | {"endpoint": "http://gpu:1"}), "entry 1: kraken reads a file"),
    "a file for openai": (registry_text(OPENAI | {"location": "gpt"}), "entry 1: openai is asked at its endpoint"),
    "a taken id": (registry_text(KRAKEN | {"kind": "segmentor", "id": "kraken-blla"}), "entry 1: the id kraken-blla is that of"),
    "an id no context takes": (registry_text(KRAKEN | {"kind": "segmentor", "id": "Blla/2"}), "entry 1: a segmentor's id has"),
    "no endpoint": (registry_text(OPENAI | {"engine": "glm-ocr"}), "entry 1: glm-ocr needs an endpoint"),
    "no address": (registry_text(OPENAI | {"endpoint": "gpu:8000"}), _NO_ENDPOINT),
    "a file's address": (registry_text(OPENAI | {"endpoint": "file:///etc/passwd"}), _NO_ENDPOINT),
    "no port": (registry_text(OPENAI | {"endpoint": "http://gpu:port/v1"}), "entry 1: endpoint: "),
    "too high a port": (registry_text(OPENAI | {"endpoint": "http://gpu:99999/v1"}), "entry 1: endpoint: "),
    "half an address": (registry_text(OPENAI | {"endpoint": "http://[::1"}), "entry 1: endpoint: "),
    "credentials": (registry_text(OPENAI | {"endpoint": f"https://me:{KEY}@models.example/v1"}), _NO_ENDPOINT),
    "a query": (registry_text(OPENAI | {"endpoint": f"https://models.example/v1?key={KEY}"}), _NO_ENDPOINT),
    "a fragment": (registry_text(OPENAI | {"endpoint": "https://models.example/#v1"}), _NO_ENDPOINT),
    "two lines": (registry_text(OPENAI | {"endpoint": "https://models.example/\nX-Key: a"}), _NO_ENDPOINT),
    "strange variable": (
        registry_text(OPENAI | {"key_variable": "OPENAI KEY"}),
        "entry 1: key_variable: has to be the name of the variable",
    ),
    "a key for its variable": (registry_text(OPENAI | {"key_variable": KEY}), "entry 1: key_variable: .*, not the key: "),
    "no bytes": (registry_text(OPENAI | {"max_request_bytes": 0}), "entry 1: max_request_bytes: "),
    "no room": (registry_text(OPENAI | {"max_response_bytes": -1}), "entry 1: max_response_bytes: "),
    "no pixels": (registry_text(OPENAI | {"max_image_side": 31}), "entry 1: max_image_side: "),
    "no tokens": (registry_text(OPENAI | {"max_output_tokens": 0}), "entry 1: max_output_tokens: "),
}


@pytest.mark.parametrize("case", _WRONG)
def test_a_file_that_is_wrong_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str) -> None:
    """R21, R166: the line names the file and the entry, and repeats nothing that may be a key."""
    text, said = _WRONG[case]
    with pytest.raises(ScribeError, match=rf"^SCRIBE_MODELS_FILE, {tmp_path}/models.toml[,:] .*{said}") as refused:
        read(monkeypatch, tmp_path, text)
    assert refused.value.category is Category.UNAVAILABLE
    assert "\n" not in refused.value.message and KEY not in refused.value.message
    assert refused.value.__cause__ is None


def test_a_missing_file_is_named_and_ends_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R166: one line, and 1."""
    monkeypatch.setattr(main, "_quiet", lambda: None)
    monkeypatch.setattr(main, "app", lambda: check_transcriber("openai", "gpt"))
    with registered(monkeypatch, tmp_path / "none.toml"), pytest.raises(SystemExit) as ended:
        main.main()
    said = f"scribe: SCRIBE_MODELS_FILE, {tmp_path}/none.toml, cannot be read: No such file or directory\n"
    assert (ended.value.code, capsys.readouterr().err) == (1, said)


def test_an_entry_does_not_change() -> None:
    with pytest.raises(ValidationError):
        Model.model_validate(OPENAI).name = "other"


def test_a_key_is_read_when_it_is_needed_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """R21: the entry knows the variable's name alone; without a value the variable is named."""
    model = Model.model_validate(OPENAI)
    for empty in (None, "", "  \n"):
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        if empty is not None:
            monkeypatch.setenv("OPENAI_API_KEY", empty)
        with pytest.raises(ScribeError, match=r"^the model gpt needs a key: set OPENAI_API_KEY$") as refused:
            _ = model.key
        assert refused.value.category is Category.UNAVAILABLE
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    key = model.key
    assert key is not None and key.get_secret_value() == KEY
    assert KEY not in repr(model) + repr(key) + str(key) + model.model_dump_json()
    assert Model.model_validate(OPENAI | {"engine": "ollama"}).key is None


def test_the_file_is_read_once_by_each_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is changed in the registry is seen by processes that begin afterwards."""
    file = tmp_path / "models.toml"
    file.write_text(registry_text(OPENAI))
    with registered(monkeypatch, file):
        before = registered_models()
        file.write_text(registry_text(OPENAI | {"name": "other"}))
        assert registered_models() is before
        forget()
        assert [model.name for model in registered_models().values()] == ["other"]


def test_a_models_file_is_the_one_that_was_registered(tmp_path: Path) -> None:
    """R166: nothing else is loaded; what is there instead is named with its path."""
    path = tmp_path / "hand.mlmodel"
    content = os.urandom(3 * 1024**2)
    path.write_bytes(content)
    model = Model.model_validate(KRAKEN | {"location": path, "sha256": hashlib.sha256(content).hexdigest()})
    assert model.file() == model.checked_file() == path
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert model.file() == path  # that somebody changed it is seen when it is read
    with pytest.raises(ScribeError, match=rf"^the file of the model hand, {path}, is not the one registered") as refused:
        model.checked_file()
    assert refused.value.category is Category.UNAVAILABLE
    path.unlink()
    for look in (model.file, model.checked_file):
        with pytest.raises(ScribeError, match=rf"^the file of the model hand, {path}, is not there$"):
            look()
    path.mkdir()
    with pytest.raises(ScribeError, match=r"is not there$"):
        model.file()


def test_the_ids_of_the_segmentors_that_come_along_are_known() -> None:
    assert tuple(registry._SEGMENTORS) == BUILT_IN_SEGMENTORS
