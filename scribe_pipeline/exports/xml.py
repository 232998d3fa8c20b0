"""What the XML formats share: elements, points, numbers, and how a tree becomes bytes. Attributes stand in the order given."""

from collections.abc import Iterable, Mapping

from lxml import etree

from scribe_pipeline.engines import Point

_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'


def new_root(name: str, namespace: str, attributes: Mapping[str, str] | None = None, schema: str | None = None) -> etree._Element:
    """Return the root of a document in the default namespace, which names its schema if one is given."""
    namespaces: dict[str | None, str] = {None: namespace}
    located = {}
    if schema is not None:
        namespaces["xsi"] = _XSI
        located[f"{{{_XSI}}}schemaLocation"] = f"{namespace} {schema}"
    # the stubs do not know that None names the default namespace
    return etree.Element(f"{{{namespace}}}{name}", located | dict(attributes or {}), nsmap=namespaces)  # type: ignore[arg-type]


def add(parent: etree._Element, name: str, attributes: Mapping[str, str] | None = None, text: str | None = None) -> etree._Element:
    """Append an element of the parent's namespace and return it."""
    element = etree.SubElement(parent, f"{{{etree.QName(parent).namespace}}}{name}", dict(attributes or {}))
    element.text = text
    return element


def points(pairs: Iterable[Point]) -> str:
    """Return points as `x,y x,y`."""
    return " ".join(f"{x},{y}" for x, y in pairs)


def number(value: float, digits: int = 4) -> str:
    """Return a number of so many digits after the point at most, without an exponent."""
    rounded = round(value, digits) + 0.0  # which makes -0.0 0.0
    return f"{rounded:.{digits}f}".rstrip("0").rstrip(".")


def to_bytes(root: etree._Element, doctype: str = "") -> bytes:
    """Return the document as UTF-8 with its declaration."""
    return f"{_DECLARATION}{doctype}".encode() + etree.tostring(root, encoding="utf-8", pretty_print=True)
