r"""Taking out of a text what names a person, a place or a secret: what may be kept of an error once its job is over.

Replaced, in this order: what the caller knows of, URLs, e-mail addresses, keys that show by their form, UUIDs, what follows words
such as `token=` or `clientSecret:`, paths, names of document files. What the caller knows of is found in other spellings too: with
other gaps or none, as an address spells it, without accents, with ae for ä.
When in doubt more is replaced, not less: `read/write/execute` is a path, as are `/Type/Page` and `uploads/letter.pdf`; two words
with one slash (`fett/kursiv`) are not, unless they follow a path or a URL, which may have had a space in it; `and/or`, `km/h`,
`text/plain` and numbers (`24/12/2026`) never are. A file name with spaces that is neither quoted nor the end of a path cannot be
told from the sentence around it: its last word is replaced, the rest only if the caller knows it. So it is with the end of a path.
"""

# ruff: noqa: RUF001 - what quotes and what parts words in every script is what this is about

import re
import unicodedata
from collections.abc import Callable, Iterable
from itertools import groupby
from urllib.parse import quote

# What is longer is cut before anything is looked for; then the end goes, too, where half of something may be left.
MAX_CODE_POINTS = 20_000
_LONGEST_HALF = 512
SHORTEST_KNOWN = 4

# What holds the parts of a name together, in a file's name, in an address or in a term.
_HELD = r"[\s_+.\u00ad\u200b-\u200d\u2060\ufeff-]|%20"
# What is written for letters where there are none such: as Germans and Danes do, and for those that have no mark to leave out.
_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_UNMARKED = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_REFUSED = re.compile("[\x00\ud800-\udfff]")

# While it is worked on, a placeholder is one character that no input has: no pattern finds anything in it, and a path or a name
# that holds one is still a path or a name.
_NAME, _URL, _EMAIL, _ID, _KEY, _PATH, _FILE = _MARKS = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4\ufdd5\ufdd6"
_PLACEHOLDER_OF = dict(zip(_MARKS, ("[name]", "[url]", "[email]", "[id]", "[key]", "[path]", "[file]"), strict=True))
_MARK_OF = {placeholder: mark for mark, placeholder in _PLACEHOLDER_OF.items()}
_MARK = re.compile(f"[{_MARKS}]")
_PLACEHOLDER = re.compile("|".join(map(re.escape, _MARK_OF)))

# Names are told by what they cannot hold, so that letters of every script and their marks may be part of one. Every repetition is
# bounded, possessive or preceded by what starts it only once, so that no text takes longer than its length allows.
_QUOTES = '"`´«»‹›„“”‚‘「」『』《》〈〉'
# Letters of the scripts that part words by spaces; in others a name or a quotation may begin and end right beside a letter.
_LETTERS = "A-Za-z0-9À-ӿ"
_SPELLED = f"{_LETTERS}_"
_NOT_INSIDE = rf"(?:(?<![{_SPELLED}]['’])|(?![{_SPELLED}]))"
_APOSTROPHE = rf"(?<=[{_SPELLED}])['’](?=[{_SPELLED}])"
_AFTER = ".,;:!?)]}>'’…，。；：、！？）】—–-"
_EXTENSIONS = (
    "pdf|docx?|docm|dotx?|odt|ods|odp|odg|rtf|xlsx?|xlsm|csv|tsv|pptx?|ppsx?|tiff?|jpe?g|png|webp|jp2|jpx|j2k|gif|bmp|hei[cf]|avif|svg|"
    "eps|ps|ai|cdr|afpub|afdesign|vsdx?|xml|alto|hocr|jsonl?|ya?ml|txt|md|log|x?html?|epub|mobi|tex|indd|idml|psd|pub|wpd|eml|"
    "msg|zip|7z|rar|tar|t?gz|xps|djvu"
)
# A text in a script without spaces may go on right after an ending.
_ENDING = rf"\.(?:{_EXTENSIONS})(?![A-Za-z0-9])"
_DOCUMENT = re.compile(rf"[^\s.*/\\(\[{{,;:=]{_ENDING}", re.I)

_SCHEME = r"[a-z][a-z0-9+.-]{0,30}(?::|%3a)(?://|\\/\\/|%2f%2f)"
_LOOSE_SCHEME = r"(?<![A-Za-z0-9À-ӿ])(?:www\d?\.(?=\w)|mailto:(?=\S)|file:(?=/)|data:(?=[a-z]{1,30}/|[;,]\S))"
_URLS = re.compile(
    rf"(?<=\"){_SCHEME}[^\"\n]{{1,2000}}(?=\")|(?<='){_SCHEME}(?:[^'\n]|{_APOSTROPHE}){{1,2000}}+(?=')|"
    rf"(?:{_SCHEME}|{_LOOSE_SCHEME})(?:[^\s<>'’{_QUOTES}]|['’](?=[{_SPELLED}]))++",
    re.I,
)

_BOUND = rf"\s@＠﹫<>()\[\],;:\\='’{_QUOTES}"
_AT = "(?:@|%40|&#64;|[＠﹫])"
_EMAILS = re.compile(
    rf"(?:\"[^\"\n]{{1,64}}\"|(?<![^{_BOUND}]){_NOT_INSIDE}(?:(?!%40|&#64;)[^{_BOUND}]|{_APOSTROPHE})++){_AT}"
    # so that `image@2x` and `package@1.2.3` are no addresses
    rf"(?=[^\W\d_]|[{_MARKS}\[]|[^\s@]{{1,253}}\.[^\W\d_]{{2}}|(?:\d{{1,3}}\.){{3}}\d)"
    rf"(?:\[[^\]\s]{{1,64}}\]|[^/?&#{_BOUND}]++)",
    re.I,
)

_DASH = "[-_‐-―]"
_UUIDS = re.compile(
    rf"(?:urn:uuid:)?[{{(]?(?:[0-9a-f]{{8,40}}{_DASH}[0-9a-f]{{4}}{_DASH}[0-9a-f]{{4}}{_DASH}[0-9a-f]{{4}}{_DASH}[0-9a-f]{{12,40}}|"
    r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f]))[})]?",
    re.I,
)

_ISSUED = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\w\s+/=]*+(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?|"
    r"eyJ[\w-]{5,}+(?:\.[\w-]*+){0,4}|"
    r"(?<![A-Za-z0-9])(?:AIza|ya29\.|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|xapp-|whsec_|pypi-|SG\.)[\w.-]{8,}+|"
    r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{8,}+|"
    r"(?<![A-Za-z0-9])[0-9a-fA-F]{32}\.[A-Za-z0-9]{8,}+|"
    r"(?<![A-Za-z0-9])GOCSPX-[\w-]{8,}+|"
    r"(?<![A-Za-z0-9])(?:[srp]k[-_](?:live|test)_|re_|key-|sk-|hf_|npm_)(?=[\w-]{0,200}?\d)[\w-]{8,}+|"
    r"(?<![A-Za-z0-9])sk-(?:[a-z]{1,8}-)?[A-Za-z]{20}[\w-]*+"
)
_SECRETS = re.compile(
    r"(?P<kept>(?<![A-Za-z0-9])(?:\w{1,40}[_-]|x-|(?P<camel>(?-i:[A-Za-z0-9]{0,39}[a-z0-9](?=[A-Z]))))?(?:"
    r"(?P<always>[A-Za-z0-9]{0,20}pass(?:word|wd|phrase)|pass|pwd|secret|authorization|"
    r"(?:api|access|secret|private)[_-]?key|cookie|credentials?)|"
    r"key|token|auth|sig|signature|session)[\"']?\s{0,3}(?:=>?|:)\s{0,3})"
    r"(?P<secret>(?:(?:Bearer|Basic|Digest|Token|ApiKey)\s{1,3})?(?:\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|[^\s,;&')}\]"
    + _QUOTES
    + r"]++))",
    re.I,
)
_BEARER = re.compile(r"(?P<kept>(?<![A-Za-z0-9])(?:Bearer|Basic)\s{1,3})(?P<secret>[\w.~+/=-]{8,}+)", re.I)
_RUNS = re.compile(r"[0-9a-f]{32,}+|(?<![\w+/-])[\w+/-]{24,}+", re.I)

_WORD = rf"[^\s/\\<>|?*{_QUOTES}'’]"
_IN_PATH = rf"(?:{_WORD}|{_APOSTROPHE})"
_TO = r"[/\\]{1,4}"
_PREFIX = rf"(?:(?<![A-Za-z0-9])[A-Za-z]:(?=[/\\])|(?<!{_WORD})(?:~(?:[^\W\d][\w.-]{{0,60}})?|\.\.?)(?=[/\\])|\\\\[?.])"
_IN_HEAD = rf"[^\s/\\<>|?*{_QUOTES}'’()\[\]{{}},;:=]"
_HEAD = rf"(?<!{_IN_HEAD}){_NOT_INSIDE}(?:{_IN_HEAD}|{_APOSTROPHE})++"
_NO_PATH = (
    r"(?!(?i:and/or|n/a|w/o|km/h|tcp/ip|pdf/[aeux]\S{0,8}|https?/[\d.]{1,5}|[\d.,]{1,20}/[\d.,]{1,20}|"
    r"(?:application|audio|font|image|message|model|multipart|text|video)/[\w.+-]{1,80})(?:[\s,;:.)]|$))"
)
_SPACE = r"(?<![,;:.!?]) (?!(?:~|\.\.?|[A-Za-z]:)[/\\])"
_SPACED = rf"{_IN_PATH}{{1,255}}+(?:{_SPACE}{_IN_PATH}{{1,255}}+){{0,5}}?"
# A path whose parts hold single spaces, up to the first name of a document file.
_SPACED_PATHS = re.compile(
    rf"{_NO_PATH}(?:{_PREFIX}|{_HEAD}(?=[/\\])|(?<!{_IN_HEAD})(?={_TO}{_SPACED}{_TO}))(?:{_TO}{_SPACED}){{0,40}}?"
    rf"{_TO}(?:{_IN_PATH}{{1,255}}+{_SPACE}){{0,5}}?{_IN_PATH}{{1,255}}?{_ENDING}",
    re.I,
)
_DRIVE_PATHS = re.compile(
    rf"(?:(?<![A-Za-z0-9])[A-Za-z]:(?=\\)|(?=\\{{2,4}}{_IN_PATH}{{1,255}}+\\))"
    rf"(?:\\{{1,4}}{_IN_PATH}{{1,255}}+(?:{_SPACE}{_IN_PATH}{{1,255}}+){{0,3}}?(?=\\)){{0,40}}+"
    rf"\\{{1,4}}{_IN_PATH}++"
)
_PATHS = re.compile(rf"(?:{_PREFIX}|{_HEAD})?(?:{_TO}{_IN_PATH}++)++[/\\]{{0,4}}(?:\?(?=\w)[^\s<>'’{_QUOTES}]++)?")

# A path as an address spells it, from what may stand before a path.
_BEFORE_PATH = rf"\s<>()\[\]{{}},;:=|'’{_QUOTES}{_MARKS}"
_ENCODED_PATHS = re.compile(
    rf"(?<![^{_BEFORE_PATH}])(?:(?:(?!%2f|%5c)[^{_BEFORE_PATH}])*+%(?:2f|5c)){{2,}}+[^\s<>'’{_QUOTES}]*+", re.I
)
# What stands in the middle of a person's name.
_PARTICLE = "(?i:van|von|vom|zu|zur|de|del|della|der|den|des|di|da|do|dos|la|le|el|ten|ter|y) "
# What is left of a path or a URL with a space in one of its parts, up to the end of its last part that has a slash before it; of
# the words up to a slash only the first may have a small letter, or follow a particle, so that a sentence goes on.
_REST = re.compile(
    rf"(?<=[{_URL}{_PATH}])(?:{_SPACE}(?:{_PARTICLE}|{_IN_PATH}{{1,60}}+{_SPACE}(?={_PARTICLE}|[A-ZÀ-Þ])){{0,4}}{_NO_PATH}"
    rf"{_IN_PATH}{{1,255}}+[/\\](?:{_IN_PATH}|[/\\])*+)++"
)

_PAIRS = (
    ("‘‚", "’‘"),
    ("`", "`'"),
    ("´", "´"),
    ("„“”", "“”"),
    ("«»", "«»"),
    ("‹›", "‹›"),
    ("「", "」"),
    ("『", "』"),
    ("《", "》"),
    ("〈", "〉"),
)
# The first part of what is a path even if only one more follows: a home, a drive, here, a level up, a host.
_ROOT = re.compile(r"~$|^~[^\W\d]|(?<![A-Za-z0-9.])\.\.?$|(?<![A-Za-z0-9])[A-Za-z]:$|^(?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,}$")
_QUOTED = re.compile(
    r"(?<!\d)\"(?=\S)[^\"\n]{1,400}+(?<=\S)\"|"
    rf"(?:(?<![{_SPELLED}])|(?<![^\W_])(?<=[bfru]))'(?=\S)(?:[^'\n]|{_APOSTROPHE}){{1,400}}+(?<=\S)'(?![{_SPELLED}])|"
    + "|".join(rf"[{start}](?=\S)(?:[^{start}{end}\n]|{_APOSTROPHE}){{1,400}}+(?<=\S)[{end}]" for start, end in _PAIRS)
)
# What stands between two marks, whether or not they are a pair: one that is missing or too many must not shift all that follow.
_OPENED = rf"(?:(?<=[{_QUOTES}])|(?<=')(?:(?<![{_SPELLED}]')|(?<![{_SPELLED}].')(?<=[bfru]')))"
_BETWEEN = re.compile(
    rf"{_OPENED}(?![\s,;:!?)\]}}>，。）]|\.\s)(?:[^{_QUOTES}'’\n]|{_APOSTROPHE}){{1,400}}+(?<=\S)(?=[{_QUOTES}'’])"
)
_NAMES = re.compile(rf"(?:[^\s/\\<>|?*:={_QUOTES}'’]|{_APOSTROPHE})++")


def redact(text: str, known: Iterable[str] = ()) -> str:
    """Return the text with a placeholder ([name], [url], [email], [id], [key], [path], [file]) for whatever could tell on somebody.

    `known` are names, stems, keys and ids that the caller knows of; they are found as whole words in either case, from four
    characters on. The result can be stored as UTF-8 and in jsonb, and redacting it again changes nothing.
    """
    words = _known_words(known)
    marked = _PLACEHOLDER.sub(lambda found: _MARK_OF[found[0]], _MARK.sub("", clean(text)))
    if len(marked) > MAX_CODE_POINTS:
        found = _replace_all(marked[:MAX_CODE_POINTS], words)[:-_LONGEST_HALF]
        marked = found[: len(found) - len(re.split(r"\s", found)[-1])].rstrip()
    return _MARK.sub(lambda found: _PLACEHOLDER_OF[found[0]], _replace_all(marked, words))


def clean(text: str) -> str:
    """Return the text without NUL and lone surrogates, which jsonb refuses."""
    return _REFUSED.sub("", text)


def truncate(text: str, limit: int) -> str:
    """Return the text in at most `limit` code points; the last one is an ellipsis if it was cut. `limit` is 1 or more."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _known_words(known: Iterable[str]) -> re.Pattern[str] | None:
    forms = {form for word in known for form in _spellings(clean(word).strip())}
    told = sorted((word for word in forms if len(word) >= SHORTEST_KNOWN), key=lambda word: (-len(word), word))
    any_of_them = "|".join(dict.fromkeys(map(_in_any_form, told)))
    return re.compile(rf"(?:(?<![{_LETTERS}])|(?<=%[0-9a-f]{{2}}))(?:{any_of_them})", re.I) if told else None


def _spellings(word: str) -> set[str]:
    """Return a word as others spell it: without accents, with two letters for one, as part of an address, without gaps."""
    composed = unicodedata.normalize("NFC", word)
    # a name from a Mac comes with its accents as characters of their own
    forms = {word, composed, unicodedata.normalize("NFD", word)}
    if not word.isascii():
        for spelled in (composed.lower(), composed.lower().translate(_SPELLED_OUT)):
            letters = unicodedata.normalize("NFD", spelled.translate(_UNMARKED))
            forms.add("".join(letter for letter in letters if not unicodedata.combining(letter)))
    forms |= {quote(form) for form in forms}
    return forms | {joined for form in forms if not (joined := re.sub(_HELD, "", form)).isdecimal()}


def _in_any_form(word: str) -> str:
    """Return a pattern for a word, however its parts are held together: who makes a file of another likes to change that.

    What is made of several parts and ends in a letter may go on, as `Jane Doe_tagged` and `Jane Doe CV2` do.
    """
    parts = [part for part in re.split(_HELD, word) if part]
    goes_on = r"[\w-]{0,40}" if len(parts) > 1 and word[-1].isalpha() else ""
    held = f"(?:{_HELD}){{1,8}}".join(map(re.escape, parts)) if len(parts) > 1 else re.escape(word)
    return f"{held}{goes_on}(?![{_LETTERS}])"


def _replace_all(text: str, words: re.Pattern[str] | None) -> str:
    """Replace until nothing is left to replace: what one replacement leaves may be half of something that only now shows."""
    steps: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
        (_URLS, _but_after(_URL)),
        (_EMAILS, _but_after(_EMAIL, ".!?…}")),
        # such a key may begin like an id
        (_ISSUED, _but_after(_KEY)),
        (_UUIDS, lambda found: _ID),
        (_SECRETS, _secret),
        (_BEARER, _bearer),
        (_RUNS, lambda found: _KEY if _is_random(found[0]) else found[0]),
        (_BETWEEN, lambda found: _named(found[0]) or found[0]),
        (_QUOTED, _quoted),
        (_SPACED_PATHS, lambda found: _PATH),
        (_DRIVE_PATHS, _but_after(_PATH)),
        (_ENCODED_PATHS, _but_after(_PATH)),
        (_PATHS, _path),
        (_REST, lambda found: found[0][len(found[0].rstrip(_AFTER)) :]),
        (_NAMES, _file),
    ]
    if words:
        steps.insert(0, (words, lambda found: _NAME))
    before = None
    while text != before:
        before = text
        for pattern, replacement in steps:
            text = pattern.sub(replacement, text)
    return text


def _but_after(mark: str, after: str = _AFTER) -> Callable[[re.Match[str]], str]:
    """Leave the full stop, comma or bracket after what is replaced."""
    return lambda found: mark + found[0][len(found[0].rstrip(after)) :]


def _secret(found: re.Match[str]) -> str:
    secret = found["secret"]
    # `unexpected token: endobj` and `maxToken: 4096` are about a file, `token: 83hf82h` is not
    is_word = found["kept"][-1].isspace() and secret.isalpha() and len(secret) < 20
    is_count = found["camel"] and secret.isdecimal() and len(secret) < 8
    if not found["always"] and (is_word or is_count):
        return found[0]
    return found["kept"] + _KEY


def _bearer(found: re.Match[str]) -> str:
    secret = found["secret"]
    return found[0] if secret.isalpha() and len(secret) < 20 else found["kept"] + _KEY


def _is_random(run: str) -> bool:
    """Whether letters and digits alternate as nobody writes them."""
    if re.fullmatch("[0-9a-fA-F]{32,}", run):
        return True
    kinds = [kind for kind, _ in groupby(filter(str.isalnum, run), _kind)]
    if run.isalnum():
        return "digit" in kinds and len({*kinds}) > 1
    return len({*kinds}) > 2 and len(kinds) * 3 >= len(run)


def _kind(character: str) -> str:
    return "digit" if character.isdigit() else "upper" if character.isupper() else "lower" if character.islower() else "other"


def _quoted(found: re.Match[str]) -> str:
    content = found[0][1:-1]
    return found[0][0] + (_named(content.strip(_QUOTES + "'’")) or _QUOTED.sub(_quoted, content)) + found[0][-1]


def _named(quotation: str) -> str | None:
    """Return what stands for a quotation that is a path or a file name as a whole."""
    parts = re.split(_TO, quotation)
    if any(document.end() == len(quotation) for document in _DOCUMENT.finditer(quotation)):
        return _FILE if len(parts) == 1 else _PATH
    if len(parts) == 1 or _is_numeric(parts) or any(part != part.strip() for part in parts):
        return None
    return _PATH if len(parts) > 2 or _ROOT.search(parts[0]) or _MARK.fullmatch(parts[0]) else None


def _path(found: re.Match[str]) -> str:
    whole = found[0].rstrip(_AFTER)
    rest = found[0][len(whole) :]
    parts = [part for part in re.split(_TO, whole) if part]
    if len(parts) < 2 or _is_numeric(parts):
        return found[0]
    told = len(parts) > 2 or whole[0] in "/\\" or _ROOT.search(parts[0]) or _DOCUMENT.search(whole) or _MARK.search(whole)
    return _PATH + rest if told else found[0]


def _is_numeric(parts: list[str]) -> bool:
    return not any(character.isalpha() or character in _MARKS for part in parts for character in part)


def _file(found: re.Match[str]) -> str:
    core = found[0].lstrip("([{,;（【")
    start, whole = found[0][: len(found[0]) - len(core)], core.rstrip(_AFTER)
    return start + _FILE + core[len(whole) :] if _DOCUMENT.search(whole) else found[0]
