#!/usr/bin/env python3
"""Bibliography references with their fields, made up: python3 experiments/demo/corpus.py FOLDER [--train N] [--test N]

Writes FOLDER/train.txt and FOLDER/test.txt: a token a line with its label, an empty line behind a reference. A
reference is an article or a book in one of several styles. What makes real references hard is in them: titles are
built from the words that journals and places are built from, hold years and numbers of their own, and go on behind a
colon or a full stop; punctuation is left out, letters are lost, and every list of references has its own order. The
same seed gives the same files.
"""
import argparse
import random
from pathlib import Path

FAMILY = """Abbott Adeyemi Aguilar Albrecht Andersen Aoki Arnaud Baker Banerjee Barbosa Becker Bennett Bianchi Bishop
Blum Borg Bose Brandt Brennan Castillo Chen Cohen Conti Costa Cruz Dahl Das Delgado Diaz Dietrich Dubois Eriksen
Esposito Farkas Ferrari Fischer Fontaine Forster Fraser Garcia Gauthier Gibson Gonzalez Graf Gupta Haas Hansen
Hashimoto Hofmann Horvath Hughes Ito Ivanov Jansen Jensen Johansson Kaplan Keller Khan Kim King Klein Kovacs Kowalski
Kumar Lambert Lang Larsen Lee Leone Lindgren Lopez Marino Marsh Martin Mehta Meyer Miller Mori Moreau Murphy Nagy
Nakamura Nielsen Novak Okafor Olsen Ortiz Park Patel Pereira Peters Petit Popov Price Ramos Rao Richter Rivera Romano
Rossi Roth Russo Sanchez Santos Sato Schmidt Schneider Silva Singh Smith Sokolov Stein Suzuki Tanaka Thomas Torres
Ueda Vargas Vogel Wagner Walker Wang Watanabe Weber White Wolf Wood Yamada Yilmaz Young Zhang Ziegler""".split()

ADJECTIVES = """Adaptive American Ancient Applied Arctic Atlantic Biological British Central Chemical Clinical Coastal
Cognitive Comparative Cultural Digital Early Economic European Experimental General Global Historical Human Industrial
International Legal Linguistic Local Marine Mathematical Medical Medieval Modern Molecular National Natural Northern
Nuclear Organic Political Practical Public Regional Rural Social Southern Structural Theoretical Tropical
Urban""".split()

NOUNS = """Agriculture Algebra Archives Art Behaviour Botany Breeding Chemistry Children Cities Climate Commerce
Computation Culture Design Development Ecology Economics Education Energy Engineering Evolution Families Farming Films
Fisheries Forestry Genetics Geography Geology Health History Housing Industry Justice Labour Languages Law Learning
Libraries Linguistics Literature Logic Management Markets Mathematics Media Medicine Memory Migration Mining Music
Networks Nursing Nutrition Optics Patients Philosophy Physics Physiology Planning Policy Politics Populations
Psychology Research Rivers Schools Science Sociology Soils Statistics Studies Systems Teaching Technology Theatre
Theology Trade Transport Water Welfare Women Writing""".split()

OPENINGS = """Aspects Causes Changes Conditions Consequences Effects Elements Essays Estimates Foundations Growth
Limits Measures Methods Models Notes Observations Origins Patterns Perspectives Principles Problems Reflections Reform
Remarks Rise Roots Sources Structure Surveys Theories Transformation Trends Uses Varieties""".split()

PLACES = """Amsterdam Athens Baltimore Basel Berlin Bologna Boston Brussels Budapest Cambridge Chicago Copenhagen
Dublin Edinburgh Geneva Glasgow Hamburg Helsinki Lisbon London Madrid Melbourne Milan Montreal Munich Oslo Oxford
Paris Philadelphia Prague Princeton Rome Stockholm Sydney Tokyo Toronto Utrecht Vienna Warsaw Zurich""".split()
TWO_WORD_PLACES = ["New York", "San Francisco", "The Hague", "Buenos Aires", "Los Angeles", "New Haven"]

HOUSES = ["University Press", "Academic Press", "Press", "and Sons", "Verlag", "Publishers", "Books", "Editions"]


class Writer:
    """Draws the parts of references. Each part is a list of (token, label)."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, items):
        return items[self.random.randrange(len(items))]

    def number(self, low, high):
        return str(self.random.randint(low, high))

    def labelled(self, text, label):
        return [(token, label) for token in text.replace("..", ".").split()]

    # --- the fields ---------------------------------------------------------------------------------------------------

    def authors(self):
        family_first = self.chance(0.7)
        names = [self.author(family_first) for _ in range(self.pick([1, 1, 1, 2, 2, 3, 4]))]
        if len(names) == 1:
            text = names[0]
        else:
            text = ", ".join(names[:-1]) + self.pick([", and ", " and ", ", & ", ", "]) + names[-1]
        if self.chance(0.05):
            text += " et al."
        return self.labelled(text + self.pick([".", ".", ",", ":", ""]), "author")

    def author(self, family_first):
        between = self.pick([" ", ""])
        initials = between.join(self.pick("ABCDEFGHJKLMNPRSTVW") + "." for _ in range(self.pick([1, 1, 2])))
        family = self.pick(FAMILY) + ("-" + self.pick(FAMILY) if self.chance(0.04) else "")
        return f"{family}{self.pick([', ', ', ', ' '])}{initials}" if family_first else f"{initials} {family}"

    def year(self):
        return self.number(1950, 2024) + (self.pick("abc") if self.chance(0.08) else "")

    def date(self):
        text = self.pick(["({}).", "({}).", "({})", "{}.", "{},", "{}", "{}:"]).format(self.year())
        if self.chance(0.12):
            day = self.pick(["March", "June", "Autumn", "Dec.", "Spring", "12 May"])
            text = day + " " + text.lstrip("(").replace(")", "")
        return self.labelled(text, "date")

    def topic(self):
        kind = self.random.randrange(6)
        noun, other = self.pick(NOUNS), self.pick(NOUNS)
        return [noun, f"{self.pick(ADJECTIVES)} {noun}", f"{noun} and {other}",
                f"{self.pick(ADJECTIVES)} {noun} and {other}",
                f"the {noun} of {self.place()}", f"{noun} in {self.place()}"][kind]

    def place(self):
        return self.pick(TWO_WORD_PLACES) if self.chance(0.2) else self.pick(PLACES)

    def title(self):
        form = self.pick(["{} of {}", "The {} of {}", "{} in {}", "On the {} of {}", "{} {}"])
        text = form.format(self.pick(OPENINGS), self.topic())
        if self.chance(0.2):
            text = self.topic()
        if self.chance(0.3):
            text += self.pick([": ", ": ", ". ", " - ", "? "])
            text += self.pick(["A Study of {}", "The Case of {}", "{}", "Towards {}", "Review of {}",
                               "Proceedings of {}"]).format(self.topic())
        if self.chance(0.25):
            form = self.pick([" since {}", ", {}", " before {}", " in {}", " after {}", " {}"])
            text += form.format(self.span_of_years())
        if self.chance(0.08):
            text += self.pick([", Part {}", ", Volume {}", " {}", ", no. {}"]).format(self.number(1, 9))
        if self.chance(0.08):
            text = self.pick(FAMILY) + self.pick(["'s ", " and the ", " on ", ", "]) + text
        if self.chance(0.35):
            text = text[0] + text[1:].lower()
        return self.labelled(text + self.pick([".", ".", ".", ",", ""]), "title")

    def span_of_years(self):
        first = self.random.randint(1780, 1990)
        return f"{first}" if self.chance(0.6) else f"{first}-{first + self.random.randint(2, 60)}"

    def journal(self):
        text = self.pick(["Journal of {}", "Journal of {}", "Annals of {}", "{} Review", "{} Letters", "{}",
                          "Review of {}", "Proceedings of the {} Society",
                          "Studies in {}", "Archives of {}"]).format(self.topic())
        if self.chance(0.1):
            text = "In " + text
        if self.chance(0.15):
            for word, short in ("Journal", "J."), ("Review", "Rev."), ("Proceedings", "Proc."), ("Studies", "Stud."):
                text = text.replace(word, short)
        return self.labelled(text + self.pick([",", ",", ".", "", ""]), "journal")

    def volume(self):
        number, issue = self.number(1, 120), self.number(1, 12)
        form = self.pick(["{}({}),", "{}({}):", "{}.{}", "vol. {}, no. {},", "{}", "{},", "{}:", "Vol. {}", "{}, {},"])
        return self.labelled(form.format(number, issue), "volume")

    def pages(self):
        first = self.random.randint(1, 900)
        pages = f"{first}{self.pick(['-', '-', '–', '--'])}{first + self.random.randint(1, 40)}"
        return self.labelled(self.pick(["{}.", "{}.", "pp. {}.", "p. {}", "{}", "{},"]).format(pages), "pages")

    def location(self):
        return self.labelled(self.place() + self.pick([":", ":", ",", ""]), "location")

    def publisher(self):
        text = f"{self.pick([self.pick(FAMILY), self.pick(PLACES), self.pick(ADJECTIVES)])} {self.pick(HOUSES)}"
        return self.labelled(text + self.pick([".", ",", ",", ""]), "publisher")

    # --- references ---------------------------------------------------------------------------------------------------

    def article(self):
        where = [self.journal()] + ([self.volume()] if self.chance(0.85) else [])
        pages = [self.pages()] if self.chance(0.85) else []
        style = self.random.randrange(3)
        if style == 0:
            return [self.authors(), self.date(), self.title(), *where, *pages]
        if style == 1:
            return [self.authors(), self.title(), *where, self.date(), *pages]
        return [self.authors(), self.title(), *where, *pages, self.date()]

    def book(self):
        house = [self.location(), self.publisher()] if self.chance(0.6) else [self.publisher(), self.location()]
        if self.chance(0.2):
            house = [self.publisher()]
        if self.chance(0.5):
            return [self.authors(), self.date(), self.title(), *house]
        return [self.authors(), self.title(), *house, self.date()]

    def reference(self):
        fields = self.article() if self.chance(0.65) else self.book()
        return [(self.worn(token), label) for field in fields for token, label in field]

    def worn(self, token):
        """Punctuation that is left out, letters that are lost or doubled."""
        if self.chance(0.08) and len(token) > 1:
            token = token.strip(".,:()") or token
        if self.chance(0.02) and len(token) > 4:
            at = self.random.randrange(1, len(token) - 1)
            token = token[:at] + self.pick(["", token[at] * 2]) + token[at + 1:]
        return token


def write(path, references):
    blocks = ["".join(f"{token}\t{label}\n" for token, label in reference) for reference in references]
    path.write_text("".join(block + "\n" for block in blocks), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=200, help="references in train.txt")
    parser.add_argument("--test", type=int, default=1000, help="references in test.txt")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    writer = Writer(arguments.seed)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write(arguments.folder / "train.txt", [writer.reference() for _ in range(arguments.train)])
    write(arguments.folder / "test.txt", [writer.reference() for _ in range(arguments.test)])


if __name__ == "__main__":
    main()
