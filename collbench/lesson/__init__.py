"""The lesson: a page whose numbers are this machine's, exercises with a judge, and what a teacher needs.

`screens` gathers what a page says from runs and from the texts in `assets/`; `page` writes it as one HTML file, `kit`
as slides and a sheet.  `exercises` has the puzzles, `judge` says what is wrong with an answer.
"""
