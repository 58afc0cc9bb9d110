"""The lesson: a page whose numbers are this machine's, and what a teacher needs.

`screens` gathers what a page says from runs and from the texts in `assets/`; `page` writes it as an HTML file, `kit`
as slides, a sheet and a plan.
"""
