"""What is left of a chat's answer: the line's text, and all of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribe_pipeline.engines.answers import read_answer


@pytest.mark.parametrize(
    "answer",
    [
        "```\nDear Sir\n```",
        "```text\nDear Sir\n```",
        " ```Dear Sir``` \n",
        "```Dear Sir\n```",
        "Transcription: Dear Sir",
        "The transcription of the image is: Dear Sir",
        "Transcription of the handwritten line: Dear Sir",
        "Here is the transcription:\n\nDear Sir",
        "Here's the transcribed text from the image: Dear Sir",
        "Here’s the line as it is written: Dear Sir",
        'Sure! Here is the text: "Dear Sir"',
        "Of course, the text in the image reads: “Dear Sir”",
        "The line reads: `Dear Sir`",
        'The text reads: "Dear Sir"',
        'Text: "Dear Sir"',
        "Text:\nDear Sir",
        "Certainly. Transcript: „Dear Sir“",
        "Here is the transcription:\n```\nDear Sir\n```",
    ],
)
def test_what_a_chat_adds_is_taken_away(answer: str) -> None:
    """R89: fences, what is said before the text, and the quotation marks that come with it."""
    assert read_answer(answer).strip() == "Dear Sir"


@pytest.mark.parametrize(
    "line",
    [
        "",
        '"Dear Sir"',
        "„Dear Sir“",
        "Text: Matth. 5, 14",
        "The text of the deed was read aloud: twice",
        "Here is the house: it is yours",
        "Transcription was begun on the first of May",
        "Sure, he said: never",
        "transcripts: none",
        "```",
        "a `word` in between",
        "the line: 14 Kreuzer",
        "Texte : la pluie",
    ],
)
def test_what_may_be_the_lines_own_stays(line: str) -> None:
    """R89: nothing is taken away that only looks a little like a chat."""
    assert read_answer(line) == line


def test_quotation_marks_within_a_text_are_its_own() -> None:
    """R89: the first and the last of several are no pair."""
    assert read_answer('Transcription: "Yes", he said, "no"') == '"Yes", he said, "no"'


@given(st.text().filter(lambda text: ":" not in text and "```" not in text))
def test_a_text_without_colon_and_fence_is_left_alone(text: str) -> None:
    """R89, R165: in any script."""
    assert read_answer(text) == text


@given(st.text(st.characters(exclude_characters='`"“”„:'), min_size=1).map(str.strip).filter(bool))
def test_fences_and_prefixes_come_off_whole(text: str) -> None:
    """R89: whatever the text, the same is left of each way to wrap it."""
    for wrapped in (f"```text\n{text}\n```", f'Transcription: "{text}"', f"Here is the text:\n```\n{text}\n```"):
        assert read_answer(wrapped).strip() == text
