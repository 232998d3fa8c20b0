"""The name of a row's file, however other services have changed it: nothing of it is told, and everyday words stay."""

from typing import Any
from uuid import UUID

import pytest

from scribe_pipeline.outcomes.redaction import redact
from tests.endings import Endings

FORMS = (
    "Jane Doe CV_tagged",
    "Jane Doe CV_tagged.pdf",
    "Jane%20Doe%20CV",
    "jane-doe-cv",
    "JANE_DOE_CV",
    "Jane\u00a0Doe\u00a0CV",
    "Jane  Doe  CV",
    "Jane\u200b Doe\u200bCV",
    "Jane Doe CV2",
)


def facts(endings: Endings, name: str, **columns: Any) -> Any:
    """What is told of a job whose file has that name."""
    endings.house.execute("INSERT INTO files (id, name) VALUES (:id, :name)", id=UUID(int=1), name=name)
    job_id = endings.flyer(file_id=UUID(int=1), **columns)
    assert endings.scan().problems == {}
    return endings.outcome(job_id).outcome_facts


@pytest.mark.parametrize("form", FORMS)
def test_a_name_stays_in_no_form(endings: Endings, form: str) -> None:
    """R215: in errors, failures, terms and what a program calls itself; what is left is redacted as a whole."""
    terms = {"mode": form, "tree_state": form.lower(), "signals": {"producer": form, "creator": f"made of {form} by us"}}
    told = facts(
        endings,
        "Jane Doe CV.pdf",
        error=f"cannot open {form}, sorry",
        failures=[f"no title in {form}", f"<{form}> is damaged"],
        preflight=terms,
        lane=form.lower(),
    )
    texts = [text for value in told.values() for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    assert not [text for text in texts if "jane" in text.lower() or "doe" in text.lower()]
    assert (told["mode"], told["tree_state"], told["lane"]) == (None, None, None)
    assert told["error"].startswith("cannot open [") and told["error"].endswith("], sorry")
    assert all(redact(text, ["Jane Doe CV", "Jane Doe CV.pdf"]) == text for text in texts)


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("Jörg Müller Fest.pdf", "J%C3%B6rg%20M%C3%BCller%20Fest"),
        ("Jörg Müller Fest.pdf", "J\\u00f6rg M\\u00fcller Fest"),
        ("Jörg Müller Fest.pdf", "Joerg_Mueller_Fest"),
        ("Jörg Müller Fest.pdf", "Jorg Muller Fest"),
        ("Jane Doe Wedding.pdf", "JaneDoeWedding"),
        ("1693 Jane Doe.pdf", "1693_Jane_Doe"),
    ],
)
def test_a_name_stays_in_no_spelling(endings: Endings, name: str, spelled: str) -> None:
    """R215: without accents or spaces, and as addresses and JSON spell it."""
    told = facts(endings, name, error=f"title {spelled} is bad", failures=[f"no layout for tagged_{spelled}"])
    assert (told["error"], told["failures"]) == ("title [name] is bad", ["no layout for tagged_[name]"])


@pytest.mark.parametrize("name", ["Password.pdf", "Token.pdf", "Bearer.pdf", "Secret.pdf", "Private Key.pdf"])
def test_a_file_called_like_a_secret_hides_no_secret(endings: Endings, name: str) -> None:
    """R215: by such words what follows is known to be a secret, so they are nobody's name."""
    said = "password=hunter token: a1b2 Authorization: Bearer abcdefgh1, client_secret=x private_key=y"
    hidden = "password=[key] token: [key] Authorization: [key], client_secret=[key] private_key=[key]"
    assert facts(endings, name, error=said)["error"] == hidden


@pytest.mark.parametrize("failure", ["no text on page 12", "pixel diff on page 120", "page-12 differs"])
def test_everyday_words_are_nobodys_name(endings: Endings, failure: str) -> None:
    """R215, R170: failures are counted by their words, so a file that is called by such words takes none of them away."""
    assert facts(endings, "page-12.png", failures=[failure])["failures"] == [failure]


@pytest.mark.parametrize(("name", "word"), [("Out-put.pdf", "output"), ("meta-data.pdf", "metadata"), ("e-mail.pdf", "email")])
def test_everyday_words_in_two_parts_are_nobodys_name(endings: Endings, name: str, word: str) -> None:
    """R170: nor is such a word because a file's name has a hyphen in it."""
    assert facts(endings, name, error=f"the {word} is bad")["error"] == f"the {word} is bad"
