"""What is asked of a model that chats, and how its answer becomes a line's text."""

import re

PROMPT = (
    "Transcribe the one line of text in this image, exactly as it is written: keep spelling, punctuation, capitals and "
    "abbreviations. Answer with the text alone. If there is no text that can be read, answer with nothing."
)

# Answers may be long and odd: each pattern is tried at the beginning alone, and gives back a bounded part of what it took.
_THOUGHT = re.compile(r"(?:\s*+<(think|thinking)>.*?</\1>\s*+)++", re.DOTALL)
# A word beside the opening fence names a language, unless it is all there is.
_OPENING = r"\s*+```(?:[\w+#.-]*+[^\S\n]*+\n(?=\s*+[^\s`])|(?:(?:plain)?te?xt|markdown)?[^\S\n]*+\n)"
_FENCED = re.compile(_OPENING + r"?+(.*?)\n?```\s*+", re.DOTALL)
_FENCED_WITH_REMARK = re.compile(_OPENING + r"(?:(.*?)\n)??[^\S\n]*+```[^\S\n]*+\n.*", re.DOTALL)
_KIND = r"(?:(?:hand)?written\s|typed\s|typewritten\s|printed\s)?"
_OF_THE_IMAGE = r"\s(?:of|from|in)\s(?:the|this)\s(?:[\w ]{0,20}\s)?(?:image|picture|line|text)"
# What models that chat say before the text; a colon ends it, and more follows. "Text:" alone may be the line's own, as on a sermon.
_PREFIX = re.compile(
    rf"""\s*+(?P<mark>[*_]{{1,3}}+)?
    (?:(?:sure|certainly|of\ course|okay|ok|alright)[,.!]?\s{{1,3}})?
    (?:based\son\s(?:the|this)\s(?:image|picture),?\s)?
    (?:
        here(?:'s|\u2019s|\ is|\ are)\s(?:(?:the|an?|my|your)\s)?(?:[\w-]{{1,20}}\s){{0,2}}(?:text|transcription|transcript|line)
        (?:\sof\stext)?(?:{_OF_THE_IMAGE}){{0,2}}(?:\s(?:exactly\s)?as\s[^:\n]{{0,40}})?
      | (?:the\s)?(?:transcription|transcript|transcribed\ text)(?:{_OF_THE_IMAGE})?(?:\s(?:reads|says|is))?
      | (?:the\s)?{_KIND}text{_OF_THE_IMAGE}(?:\s(?:reads|says|is))?
      | the\s{_KIND}(?:text|image|picture|line)\s(?:reads|says|is)
      | i\scan\s(?:see|read)\sthe\sfollowing\s{_KIND}(?:text|line)
      | (?:the\s)?text(?=\s{{0,3}}:(?:[^\S\n]*+\n|\s{{0,3}}["“„`]))
    )
    (?(mark)(?:(?P=mark)\s{{0,3}}:|\s{{0,3}}:(?P=mark))|\s{{0,3}}:)
    (?:\s*+(?=\S)|[^\S\n]*+\n\s*+)""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTED = re.compile(r'\s*+(["“„`])([^"“”„`]*+)(["”“`])\s*+')
_CODE = re.compile(r"\s*+`([^`\n]++)`\s*+")


def read_answer(answer: str) -> str:
    """Return the text without thoughts and code fences and without what a chat says before it, and the quotation marks with that.

    Quotation marks without anything before them may be the line's own; single backticks around all of it are no line's.
    """
    thought = _THOUGHT.match(answer)
    text = _unfenced(answer[thought.end() :] if thought else answer)
    prefix = _PREFIX.match(text)
    if prefix is not None:
        text = _unfenced(text[prefix.end() :])
        quoted = _QUOTED.fullmatch(text)
        text = quoted[2] if quoted else text
    code = _CODE.fullmatch(text)
    return code[1] if code else text


def _unfenced(text: str) -> str:
    fenced = _FENCED_WITH_REMARK.fullmatch(text) or _FENCED.fullmatch(text)
    return fenced[1] or "" if fenced else text
