"""What a page of a file is called, where a file may have several."""


def page_label(filename: str, frame: int) -> str:
    """Return what tables and images call the page: the file's name, with a number from the second page on."""
    return filename if frame == 1 else f"{filename} ({frame})"


def page_in_words(filename: str, frame: int) -> str:
    """Return what sentences call the page."""
    return f"{filename}, page {frame},"
