"""What is taken out of a text, kind by kind, what stays, and how a text is cut."""

import json

import pytest

from scribe_pipeline.outcomes import redaction
from scribe_pipeline.outcomes.redaction import MAX_CODE_POINTS, clean, redact, truncate

UUID = "550e8400-e29b-41d4-a716-446655440000"

KINDS = {
    "URLs": [
        ("see https://scans.example.org/a?owner=jane#x.", "see [url]."),
        ("(HTTP://EXAMPLE.ORG), www.example.org/jane", "([url]), [url]"),
        ("s3://bucket/jane gs://bucket/jane postgresql://jane:pw@db/x", "[url] [url] [url]"),
        ("mailto:jane@example.org data:text/plain;base64,SmFuZQ==", "[url] [url]"),
        (r"https:\/\/example.org\/jane https%3A%2F%2Fexample.org%2Fjane", "[url] [url]"),
        ('"https://example.org/Jane Doe/x"', '"[url]"'),
        ("s3://bucket/Jane Doe/letter, https://example.org/u/Jane Doe/x 404", "[url], [url] 404"),
        (
            "GET https://example.org/jane HTTP/1.1 as text/plain, 3/14 and/or 1/2",
            "GET [url] HTTP/1.1 as text/plain, 3/14 and/or 1/2",
        ),
    ],
    "e-mail addresses": [
        ("jane.doe+scans@mail.example.co.uk: no such user", "[email]: no such user"),
        ("<jürgen@müller.example>, жанна@пример.рф", "<[email]>, [email]"),
        ('"jane doe"@example.org jane%40example.org jane@[192.0.2.1]', "[email] [email] [email]"),
        ("owner='o'hara@example.org'", "owner='[email]'"),
    ],
    "UUIDs": [
        (f"job {UUID}, {{{UUID}}} urn:uuid:{UUID}", "job [id], [id] [id]"),
        (f"{UUID.replace('-', '')} {UUID.upper()} job_{UUID}", "[id] [id] job_[id]"),
    ],
    "keys": [
        ("AIza" + "Sy0-_" * 7, "[key]"),
        ("sk-proj-abcdefgh12345678 sk_live_abcdefgh12345678 re_a1b2c3d4_e5f6", "[key] [key] [key]"),
        ("ghp_" + "a1" * 18 + " AKIAIOSFODNN7EXAMPLE xoxb-123-456-abcdef", "[key] [key] [key]"),
        ("Authorization: Bearer abc.def", "Authorization: [key]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "[key]"),
        (
            "key=abc token: a1b2 'password': 'my own' client_secret=x",
            "key=[key] token: [key] 'password': [key] client_secret=[key]",
        ),
        ("0123456789abcdef" * 3 + " Zx9" * 1 + "aB3" * 9, "[key] [key]"),
        (f"{UUID.replace('-', '')}.XyZpQrsTuvWxYabc is not valid", "[key] is not valid"),
        ("GOCSPX-abcdEFGH-ijkl sk-ABCdefGHIjklMNOpqrsTUV sk-proj-ABCdefGHIjklMNOpqrsTUV", "[key] [key] [key]"),
        ('{"accessToken":"abcdef","clientSecret": "hunter"}', '{"accessToken":[key],"clientSecret": [key]}'),
        ("AccountKey=ab+/==;dbPassword=a SharedAccessKey=b", "AccountKey=[key];dbPassword=[key] SharedAccessKey=[key]"),
        ("sessionToken=ab, PGPASSWORD=hunter psql", "sessionToken=[key], PGPASSWORD=[key] psql"),
    ],
    "paths": [
        ("cannot read /home/jane/letter.pdf: damaged", "cannot read [path]: damaged"),
        ("/home/jane ~/jane ./jane/x ../jane, a/b/c.pdf: uploads/jane.pdf", "[path] [path] [path] [path], [path]: [path]"),
        (r"C:\Users\jane\x, \\server\jane D:/scans/jane", "[path], [path] [path]"),
        (r"'C:\\Users\\Jane Doe\\x' \\?\C:\jane\x", "'[path]' [path]"),
        ("in /srv/Jane Doe/My letter.pdf, page 3", "in [path], page 3"),
        ("“/srv/Jane Doe/My letters” input=/home/jane", "“[path]” input=[path]"),
        ("drive.example.org/jane, архив/Жанна/письмо.pdf", "[path], [path]"),
        (r"C:\Users\Jane Doe\AppData is full", "[path] is full"),
        ("with url: /v1/jane?owner=jane&page=1", "with url: [path]"),
        ("read/write/execute is three parts", "[path] is three parts"),
        ("open /Users/Jane Doe/letter: no", "open [path]: no"),
        ("open C:/Users/Jane Doe/My Docs/x, /Users/Jane van Doe/letter", "open [path], [path]"),
        ("open /Users/Jane von der Doe/plans failed", "open [path] failed"),
        ("/Users/Juan de la Doe/plans, C:/Users/Jane Maria de Doe/x", "[path], [path]"),
        ("open %2Fhome%2Fjane%2Fplans, input=C%3A%5Cjane%5Cx", "open [path], input=[path]"),
        ("GET //h.example%2Fu%2Fjane 404", "GET [path] 404"),
        ("/srv/jane 3/14 done, /srv/jane now is read/write", "[path] 3/14 done, [path] now is read/write"),
    ],
    "file names": [
        ("letter.pdf (Letter-of_Jane(2).v1.PDF), brief.docx; jane.tiff", "[file] ([file]), [file]; [file]"),
        ("'Letter of Jane.pdf' «Lettre à Zoé.odt» b'x.xml'", "'[file]' «[file]» b'[file]'"),
        ("Müller.pdf mu\u0308ller.pdf प्रिया.jpg O'Brien.pdf 文件报告.pdf不存在", "[file] [file] [file] [file] [file]"),
        ('"the Does\' letters.pdf"', '"[file]"'),
        ("file=jane.json", "file=[file]"),
        ("Jane.ai jane.ps jane.pub jane.cdr", " ".join(["[file]"] * 4)),
        ("jane.vsd jane.vsdx jane.wpd jane.afpub jane.afdesign", " ".join(["[file]"] * 5)),
    ],
}
KEPT = (
    "pixel diff 0.12 on page 3",
    "qpdf: error -- object 12 0 has no /Type",
    "and/or 12/24 1,024/2,048 24/12/2026 km/h PDF/UA-1",
    "text/plain application/pdf application/vnd.oasis.opendocument.text",
    "24.09.2026 10:15:03 v1.2.3 98.5 % ISO 32000-2 a1b2c3d",
    "e.g. this node.js image@2x package@1.2.3",
    "Adobe InDesign 18.2 (Macintosh)",
    "line: rate_limited",
    "Producer: Acrobat Distiller 10.1.16",
    "unexpected token: endobj",
    "objectKey: 12 missing, maxToken: 4096, endToken=3",
    "AttributeError: pdf.pages[3] is None, hf_hub_download failed in npm_package_name",
    "Basic authentication failed",
    "all .pdf files, *.pdf",
    r"Q:yes a:b 1:2 \\n \\d",
    "100%2F is 1%2F3, monkey: none, compass=north, sk-learn",
    "",
)


@pytest.mark.parametrize(("text", "redacted"), [pair for pairs in KINDS.values() for pair in pairs])
def test_what_could_tell_is_replaced(text: str, redacted: str) -> None:
    """R215: e-mail addresses, URLs, multi-segment paths, file names, UUIDs and keys become placeholders, for good."""
    assert redact(text) == redacted
    assert redact(redacted) == redacted


@pytest.mark.parametrize("text", KEPT)
def test_what_tells_of_the_file_alone_stays(text: str) -> None:
    """R215: what a summary counts by is still there."""
    assert redact(text) == text


def test_what_the_row_knows_is_replaced_wherever_it_is_a_word() -> None:
    """R211: names, keys and ids of the row itself go in any case and form, longest first; parts of words stay."""
    known = ("Jane Doe (1)", "jane doe", "Zoé", "zoë's", "Zoé Müller", "user-42", "abc", "")
    assert (
        redact("JANE DOE (1), jane doe; zoe\u0301 mu\u0308ller user-42 user-421 abc", known)
        == "[name], [name]; [name] [name] user-421 abc"
    )
    assert redact("letter of Jane Doe.pdf at https://example.org/jane doe", known) == "letter of [file] at [url]"
    assert redact("[name] in a [file]", ("name", "file")) == "[name] in a [file]"


SPELLINGS = {
    "Jörg Müller Fest": (
        *("J%C3%B6rg%20M%C3%BCller%20Fest", "j%c3%b6rg+m%c3%bcller+fest", "Jo%CC%88rg%20Mu%CC%88ller%20Fest"),
        *("Jorg Muller Fest", "Joerg_Mueller_Fest", "JörgMüllerFest", "joergmuellerfest"),
    ),
    "Strauß-Łukasz": ("Strauss Lukasz", "strauss-lukasz", "Strausslukasz", "STRAUSS_LUKASZ"),
    "Søren Ångström": ("Soren Angstrom", "soeren.aangstroem"),
    "Jane Doe": ("JaneDoe", "jane doe"),
}


@pytest.mark.parametrize(("name", "spelled"), [(name, form) for name, forms in SPELLINGS.items() for form in forms])
def test_what_the_row_knows_is_replaced_in_other_spellings(name: str, spelled: str) -> None:
    """R211, R215: as addresses and tools without accents or spaces write it, and with something held to it."""
    assert redact(f"title {spelled} is bad", [name]) == "title [name] is bad"
    for held in ("tagged_", "1693_", "by%20"):
        assert redact(f"title {held}{spelled} is bad", [name]) == f"title {held}[name] is bad"
    assert redact(f"un{spelled} is bad", [name]) == f"un{spelled} is bad"


def test_numbers_without_their_gaps_are_no_name() -> None:
    """R215: a file called by a date does not take numbers out of failures."""
    assert redact("object 20240501 of 2024-05-01", ["2024-05-01"]) == "object 20240501 of [name]"


def test_a_character_that_cannot_be_stored_hides_nothing() -> None:
    """R216: NUL and lone surrogates go before anything is looked for, also in what is known; whole emoji stay."""
    assert redact("jane\x00@exam\ud83dple.org 😀 Ja\udc00ne", ("Jan\x00e",)) == "[email] 😀 [name]"
    assert clean("a\x00b\ud800c\udfff😀") == "abc😀"
    json.dumps(redact("".join(map(chr, range(0xD700, 0xE100)))), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "leak", ["jane.doe@example.org", "https://example.org/janedoe", "/home/janedoe/letter", "'Letter of Jane Doe.pdf'", UUID]
)
def test_nothing_half_is_left_where_a_long_text_is_cut(leak: str) -> None:
    """R215: wherever a cut falls in an address, a path, a name or an id, neither it nor its half is left."""
    for place in range(0, len(leak) + 1, 4):
        start = "word " * (MAX_CODE_POINTS // 5 - 20)
        start += "x" * (MAX_CODE_POINTS - len(start) - place - 1) + " "
        said = redact(start + leak + " and more" * 100)
        assert not any(part in said for part in ("jane", "Jane", "exam", "Lett", "550e", "http", "home", "'"))
        assert len(said) > MAX_CODE_POINTS - 1000
        assert redact(said) == said


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "/",
        ".",
        "@",
        "-",
        "\\",
        "'a",
        '"a',
        "a@",
        "a://",
        "a/",
        "/a ",
        "a b/",
        "%40",
        "a1B-",
        "eyJ",
        "key=",
        "x.pdf",
        "„a",
        "[",
        "C:\\a ",
        "%2F",
        "a%2",
        "/a A ",
        "/a B c/",
        "[url] A B ",
        "[path] a/",
        "aKey",
        "aPassword",
        "sk-a",
        "GOCSPX-",
        "0123456789abcdef0123456789abcdef.",
    ],
)
def test_no_text_takes_forever(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R215: 200,000 characters of what patterns begin with are done with like any other text, and stay done.

    A pattern that takes the square of them would take hours.
    """
    monkeypatch.setattr(redaction, "MAX_CODE_POINTS", 1_000_000)
    known = ("Jörg Müller Fest", "a b c d")
    said = redact(unit * (200_000 // len(unit)), known)
    assert redact(said, known) == said


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("ab😀", 3, "ab😀"),
        ("a😀😀😀", 3, "a😀…"),
        ("e\u0301e\u0301", 3, "e\u0301…"),
        ("abc", 1, "…"),
        ("", 1, ""),
    ],
)
def test_a_text_is_cut_by_code_points(text: str, limit: int, cut: str) -> None:
    """R216: at most so many code points with the ellipsis, an emoji whole or not at all."""
    assert truncate(text, limit) == cut
    truncate(text, limit).encode()
