# SPDX-License-Identifier: Apache-2.0
"""Reading of XML files from outside: of limited size, without a document type, entities and references to other files."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from sticker_uq.io.reading import MIB, marked_encoding, read_bytes
from sticker_uq.scene import InvalidInput

MOST_XML = 128 * MIB
"""Bytes of an XML file. The annotations of 300,000 pictures fit in."""


def read_xml(path: Path) -> Element:
    """The root of the XML annotation file at ``path``; raises InvalidInput for one that is too long, broken or has a document
    type.
    """
    data = read_bytes(path, MOST_XML)
    try:
        # what a program re-encoded still declares the encoding of before
        encoding = marked_encoding(data)
        return fromstring(data.decode(encoding) if encoding else data, forbid_dtd=True)
    except DefusedXmlException as error:
        raise InvalidInput(f"{path}: has a document type or entities, which are refused ({error})") from None
    except (ParseError, ValueError, LookupError) as error:  # LookupError: an encoding that does not exist
        raise InvalidInput(f"{path}: not an XML file ({error})") from None


def text_of(element: Element, name: str) -> str | None:
    """The text of the child ``name`` of ``element`` of an annotation file, None without it."""
    child = element.find(name)
    return None if child is None else (child.text or "").strip()
