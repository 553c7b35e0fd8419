"""Tables and lists for notebooks: escaped, folded and bounded."""

from html.parser import HTMLParser

from virtualstack.drawing.html import Markup, folded, make_page, property_table, table, text, url_list
from virtualstack.location import absolute_url


class _Balance(HTMLParser):
    """Checks that each element is closed."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(html):
    """Check that elements are closed, and return the HTML."""
    balance = _Balance()
    balance.feed(html)
    assert not balance.open
    return html


def test_text_is_escaped_and_shortened():
    """Markup, control characters and surrogates stay text of at most 500 characters."""
    assert text("<b>\x1b\ud800") == "&lt;b&gt;\\x1b\\ud800"
    assert len(text("a" * 10_000)) == 500
    assert text("two\nlines") == "two<br>lines"


def test_files_in_the_working_directory_have_relative_paths(tmp_path, monkeypatch):
    """Files beside it, and the root folder as working directory, keep their URL."""
    monkeypatch.chdir(tmp_path)
    inside, beside = absolute_url("run/day 1.nc"), absolute_url(f"{tmp_path}2/day.nc")
    assert text(f"snapshot 3 of '{inside}'") == "snapshot 3 of &#x27;run/day 1.nc&#x27;"
    assert url_list([inside, beside]) == f"run/day 1.nc<br>{beside}"
    monkeypatch.chdir("/")
    assert text(inside) == inside


def test_few_urls_are_shown_and_many_are_folded():
    """Up to three URLs stand as they are; of 3,000 the first 200 are listed."""
    assert url_list(["s3://b/<a>.nc", "s3://b/b.nc"]) == "s3://b/&lt;a&gt;.nc<br>s3://b/b.nc"
    html = check(url_list([f"s3://b/{i}.nc" for i in range(3000)]))
    assert html.startswith("<details><summary>3,000: s3://b/0.nc … s3://b/2999.nc</summary>")
    assert html.count("<li>") == 201
    assert "… and 2,800 more" in html
    assert url_list([]) == "none"


def test_tables_are_bounded():
    """A table of 10,000 rows shows 200 and counts the others."""
    html = check(table(["a", "<b>"], [(i, None) for i in range(10_000)]))
    assert html.count("<tr>") == 202
    assert "… and 9,800 more" in html
    assert "&lt;b&gt;" in html
    assert "… and 5 more" in table(["a"], [(1,)], total=6)


def test_parts_of_a_page():
    """A page has its title, and parts that are HTML already."""
    html = check(make_page("<x>", property_table({"a&b": Markup("<i>c</i>")}), folded("d", "<p>e</p>"), ""))
    assert "<strong>&lt;x&gt;</strong>" in html
    assert "a&amp;b" in html
    assert "<i>c</i>" in html
    assert "<details><summary>d</summary><p>e</p></details>" in html
