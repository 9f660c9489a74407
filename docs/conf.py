"""The site (`make docs`): the Markdown files of the repository as they are, and a reference from the docstrings.

Sphinx reads the whole repository, so that links between files are links between pages; `include_patterns` says which.
"""

import re
from collections.abc import Mapping

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

CONTENTS = """
```{toctree}
:hidden:
:caption: Guide

docs/install
docs/first-variance
docs/exploration
docs/agents
docs/deep
docs/not-learning
docs/experiments
examples/README
```

```{toctree}
:hidden:
:caption: Theory

docs/equations
```

```{toctree}
:hidden:
:caption: Results
:glob:

docs/results
docs/comparison
results/README
studies/README
studies/*/README
```

```{toctree}
:hidden:
:caption: Reference
:glob:

docs/reference/*
```

```{toctree}
:hidden:
:caption: Contribute

CONTRIBUTING
docs/adding
SECURITY
CHANGELOG
```
"""
"""What the sidebar shows. It is added to the README here, since a code host would show it there as text."""

ALIASES = ("Array", "ArrayLike", "Callback", "Key", "KeyLike", "Policy", "PRNGKeyArray", "Scalar", "Values")
"""Types that signatures name and do not spell out."""

project = "ubex"
root_doc = "README"
include_patterns = ["*.md", "docs/**", "results/README.md", "studies/**", "examples/README.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
suppress_warnings = ["myst.header"]  # results.md leaves out a level
default_role = "py:obj"
autodoc_default_options = {"members": True, "inherited-members": "tuple, BaseException, object", "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ALIASES}
autoclass_content = "both"
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 100
templates_path = ["templates"]
smartquotes = False
html_theme = "shibuya"
html_copy_source = html_use_index = html_domain_indices = False
html_extra_path = ["index.html"]
html_show_search_summary = False  # a page that was opened from disk cannot read another one


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Gives the first page the table of contents."""
    if page == root_doc:
        source[0] += CONTENTS


def skip_constants(app: Sphinx, parent: str, name: str, thing: object, skip: bool, options: object) -> bool:
    """Leaves functions and classes of a module; tables are named on the reference's pages."""
    return skip or (parent == "module" and not callable(thing))


def read_sections(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Finds `Args:`, `Example:` and the like, and lists tables. Sphinx's extension takes a colon below a field for a type."""
    lines[:] = [
        line for line in GoogleDocstring(lines).lines() if not line.startswith("Create new instance of ")
    ]  # NamedTuple's
    if isinstance(thing, Mapping):
        lines += [f"* ``{key}``: {value.summary}" for key, value in thing.items()]


def tidy_signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Writes aliases as their names and defaults that are made for each call as `...`; a protocol is not called."""

    def tidy(text: str | None) -> str | None:
        return text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text).replace("<factory>", "...")

    return "" if getattr(thing, "_is_protocol", False) else tidy(signature), tidy(result)


def link_names(app: Sphinx, page: nodes.document) -> None:
    """Lets names in code lead to the reference; those that are not in it stay as they are."""
    for code in list(page.findall(nodes.literal)):
        name = code.astext().partition("(")[0]
        if name.startswith("ubex.") and not isinstance(code.parent, nodes.reference | nodes.title | pending_xref):
            target = {"refdomain": "py", "reftype": "obj", "reftarget": name, "refdoc": app.env.docname}
            code.replace_self(pending_xref("", code.deepcopy(), **target))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-skip-member", skip_constants)
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("autodoc-process-signature", tidy_signature)
    app.connect("doctree-read", link_names)
