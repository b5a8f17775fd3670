"""``orchestrate view``: a local web page that only reads.

``server`` and ``guard`` (who may ask), ``site`` (what can be asked), ``runs`` (runs as they are now), ``filter`` and ``trials`` (the
table), ``one`` (one trial), ``transcript``, ``display`` and ``texts`` (what it did), ``align`` and ``compare`` (two side by side),
``static/`` (the page).
"""
