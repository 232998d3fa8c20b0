"""What is asked of a model that chats, and how its answer becomes a line's text."""

import re

PROMPT = (
    "Transcribe the one line of text in this image, exactly as it is written: keep spelling, punctuation, capitals and "
    "abbreviations. Answer with the text alone. If there is no text that can be read, answer with nothing."
)

_FENCED = re.compile(r"\s*```(?:[\w+-]*[ \t]*\n)?(.*?)\n?```\s*", re.DOTALL)
# What models that chat say before the text; a colon ends it. "Text:" alone may be the line's own, as on a sermon.
_PREFIX = re.compile(
    r"""\s*(?:(?:sure|certainly|of\ course)[,.!]?\s+)?
    (?:
        here(?:'s|\u2019s|\ is|\ are)\s(?:[^:\n]{0,40}\s)?(?:text|transcription|transcript|line)(?:\s[^:\n]{0,40})?\s*:
      | (?:the\s)?(?:transcription|transcript|transcribed\ text)
        (?:\s(?:of|from|in)\s(?:the|this)\s(?:[\w ]{0,20}\s)?(?:image|picture|line))?(?:\s(?:reads|says|is))?\s*:
      | (?:the\s)?text\s(?:of|from|in)\s(?:the|this)\s(?:image|picture|line)(?:\s(?:reads|says|is))?\s*:
      | the\s(?:text|image|picture|line)\s(?:reads|says|is)\s*:
      | (?:the\s)?text\s*:(?=\s*\n|\s*["“„`])
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTED = re.compile(r'\s*(["“„`])([^"“”„`]*)(["”“`])\s*')


def read_answer(answer: str) -> str:
    """Return the text without code fences and without what a chat says before it, and the quotation marks that come with that.

    Quotation marks without anything before them may be the line's own.
    """
    fenced = _FENCED.fullmatch(answer)
    text = fenced[1] if fenced else answer
    prefix = _PREFIX.match(text)
    if prefix is not None:
        text = text[prefix.end() :]
        fenced, quoted = _FENCED.fullmatch(text), _QUOTED.fullmatch(text)
        text = fenced[1] if fenced else quoted[2] if quoted else text
    return text
