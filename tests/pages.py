"""What an HTML report is made of."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The parts of a page, whose elements must all be closed.

    Attributes:
        text: all of it.
        links, sources: where they lead.
        captions: the number of captions of figures.
        loose: tables, pictures and blocks of text outside of boxes that scroll.
    """

    def __init__(self, text):
        super().__init__()
        self.links, self.sources, self.captions, self.text, self.loose, self._open = [], [], 0, "", [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.captions += tag == "figcaption"
        self.links += [attributes["href"]] if tag == "a" else []
        self.sources += [attributes[name] for name in ("src", "srcset") if name in attributes]
        if tag in ("table", "img", "pre") and not any("scroll" in kind for _, kind in self._open):
            self.loose.append(tag)
        if tag not in ("meta", "img", "br", "source"):
            self._open.append((tag, attributes.get("class", "")))

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
