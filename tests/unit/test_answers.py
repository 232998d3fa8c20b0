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
        "Here is the transcribed line of text from the image: Dear Sir",
        "Here is the transcription of the handwritten text in the image:\n\nDear Sir",
        "Okay, here is the transcription: Dear Sir",
        "The handwritten text reads: Dear Sir",
        "Based on the image, the text reads: Dear Sir",
        "I can see the following text:\n\nDear Sir",
        "**Transcription:** Dear Sir",
        "**Transcription**: Dear Sir",
        "__The text reads:__\n\nDear Sir",
        "```plaintext\nDear Sir\n```",
        "```Plain-Text\r\nDear Sir\r\n```\r\n",
        "```latex\nDear Sir\n```\n\nThe line is written in ```brown``` ink.",
        "Here is the transcription:\n```text\nDear Sir\n```\nIs there anything else?",
        "`Dear Sir`",
        "**Transcription:**\n\n`Dear Sir`",
        "<think>\n\n</think>\n\nDear Sir",
        "<think>It is a letter: `Dear Sir`.</think>Transcription: Dear Sir",
        "<think>a</think>\n<think>b</think>Dear Sir",
        "<thinking>It is a letter.</thinking> Dear Sir",
    ],
)
def test_what_a_chat_adds_is_taken_away(answer: str) -> None:
    """R89: thoughts, fences, what is said before the text, and the quotation marks that come with it."""
    assert read_answer(answer).strip() == "Dear Sir"


@pytest.mark.parametrize(
    "answer", ["```\n```", "```text\n```", "```\n\n```\nNothing can be read.", "<think>a</think>", "Transcription:\n"]
)
def test_a_chat_about_nothing_is_blank(answer: str) -> None:
    """R89: what is left of it is no text."""
    assert read_answer(answer).strip() == ""


def test_a_word_alone_in_a_fence_is_the_line() -> None:
    """R89: it names a language only where a text follows it."""
    assert read_answer("```Dear\n```") == "Dear"


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
        "The text reads well to me",
        "The text reads well: to me at least",
        "The line reads:",
        "Here is the transcription: ",
        "Here is the place: London",
        "Okay, here is the place: London",
        "Here is the text of my letter to him: Dear Brother",
        "Here is the end of the line: Paddington",
        "I can see the following: a cow",
        "I can see the following text well",
        "Based on the image, he said: a saint",
        "The handwritten will reads: to my wife",
        "**Text:** Matth. 5, 14",
        "*Transcription: none",
        "`Tis time, he said, `tis time`",
        "``Yes''",
        "a <think> b </think> c",
        "<think>and no end",
    ],
)
def test_what_may_be_the_lines_own_stays(line: str) -> None:
    """R89: nothing is taken away that only looks a little like a chat."""
    assert read_answer(line) == line


def test_quotation_marks_within_a_text_are_its_own() -> None:
    """R89: the first and the last of several are no pair."""
    assert read_answer('Transcription: "Yes", he said, "no"') == '"Yes", he said, "no"'


@given(st.text().filter(lambda text: ":" not in text and "`" not in text))
def test_a_text_without_colon_and_backtick_is_left_alone(text: str) -> None:
    """R89, R165: in any script."""
    assert read_answer(text) == text


@given(st.text(st.characters(exclude_characters='`"“”„:'), min_size=1).map(str.strip).filter(bool))
def test_fences_and_prefixes_come_off_whole(text: str) -> None:
    """R89: whatever the text, the same is left of each way to wrap it."""
    for wrapped in (f"```text\n{text}\n```", f'Transcription: "{text}"', f"Here is the text:\n```\n{text}\n```"):
        assert read_answer(wrapped).strip() == text


@pytest.mark.parametrize(
    ("once", "again", "end"),
    [
        ("```", "```", "x"),
        ("```a\n", "\n ```x", ""),
        ("```\n", "``` ", "x"),
        ("```", " ", "x"),
        ("<think>", "</think", ""),
        ("", "\n", "`"),
        ("*", "*", ""),
        ("Here is the text", " as", ""),
        ("Here is the line of text:", " ", ""),
        ("The transcription of the", " a", ""),
        ("Transcription", " ", "x"),
        ('The text reads: "', "x ", ""),
        ("`", " ", ""),
    ],
)
def test_a_long_answer_takes_no_longer_for_its_length(once: str, again: str, end: str) -> None:
    """R89, R110: of a million letters; a pattern that tried each of them with each would never come to an end."""
    assert read_answer(once + again * (1_000_000 // len(again)) + end).count(again.strip()) > 1_000
