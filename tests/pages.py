"""HTML as the tests read it."""

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br"}
CELLS = ("td", "th")


class Page(HTMLParser):
    """A page's headings, resources and tables of (class, text) cells. Every element must be closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.headings, self.resources = [], [], [], []
        self.scripts = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        self.resources += [v for k, v in attributes if k in ("src", "href", "srcset", "action", "data")]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in CELLS:
            self.tables[-1][-1].append([values.get("class"), ""])
        elif tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "h2" in self.open:
            self.headings[-1] += data
        if not self.open or not {*CELLS} & {*self.open}:
            return
        self.tables[-1][-1][-1][1] += f" {data}"

    def texts(self, table):
        return [[" ".join(text.split()) for _, text in line] for line in self.tables[table]]

    @property
    def cells(self):
        return [text for table in range(len(self.tables)) for line in self.texts(table) for text in line]
