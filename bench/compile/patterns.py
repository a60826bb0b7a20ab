"""The patterns of bench/compile: realistic kinds and sizes, and hostile ones that must end at a limit."""


def names(prefix, many, separator=" "):
    return separator.join(f"{prefix}{i}" for i in range(many))


def ordered(many):
    return f"ordered({names('L', many, ', ')})"


def each(rule, many):
    return f"all x in {{{names('L', many)}}}: {rule}"


def spans(scheme, many):
    return f"{scheme}({{{names('T', many)}}})"


def roles(many, once):
    """BIO over `many` roles, of which the first `once` occur once at most."""
    return f"{spans('bio', many)} & all t in {{{names('T', once)}}}: at_most(1, B-{{t}})"


def record(fields, once):
    """Fields that each stand in one piece, the first `once` of them at most once and in order."""
    return (f"({' | '.join(f'F{i}+' for i in range(fields))})* & all f in {{{names('F', once)}}}: once_contiguous({{f}})"
            f" & ordered({names('F', once, ', ')})")


def one_of_spans(many):
    types, begins = names("T", many), names("B-T", many)
    return f"bio({{{types}}}) & (all t in {{{types}}}: at_most(1, B-{{t}})) & at_most(1, [{begins}])"


def gazetteer(entries):
    """A trie: each entry is a sequence of three labels."""
    return f"O* ({' | '.join(f'A{i % 97} B{i % 89} C{i % 83}' for i in range(entries))}) O*"


def chain(length, first, rule):
    """x0 = first, and x1, x2 … each made of the one before, which is @ in `rule`."""
    lines = [f"x0 = {first}"] + [f"x{i} = {rule.replace('@', f'x{i - 1}')}" for i in range(1, length + 1)]
    return "\n".join(lines + [f"language = x{length}\n"])


# name → pattern, or the path of a language file
REALISTIC = {
    **{f"languages/{name}.lang": f"languages/{name}.lang" for name in (
        "address", "address-parts", "bio", "bioes", "citation", "citation-frequent", "even-spans", "gene", "membrane", "srl", "srl-ewt",
        "srl-full")},
    "bio, 4 types": spans("bio", 4), "bio, 18 types": spans("bio", 18), "bio, 200 types": spans("bio", 200),
    "bio, 1200 types": spans("bio", 1200), "bio, 2500 types": spans("bio", 2500), "bioes, 18 types": spans("bioes", 18),
    "bioes, 1000 types": spans("bioes", 1000),
    "bio, 20 roles, 5 once": roles(20, 5), "bio, 30 roles, 8 once": roles(30, 8), "bio, 30 roles, 10 once": roles(30, 10),
    "bio, 60 roles, 40 once": roles(60, 40), "bio, one span of 18 types": one_of_spans(18), "bio, one span of 60 types": one_of_spans(60),
    "ordered, 7": ordered(7), "ordered, 30": ordered(30), "ordered, 200": ordered(200),
    "at most once, 5": each("at_most(1, x)", 5), "at most once, 10": each("at_most(1, x)", 10), "at most once, 12": each("at_most(1, x)", 12),
    "at most once, 60": each("at_most(1, x)", 60), "at most twice, 8": each("at_most(2, x)", 8),
    "in one piece, 6": each("once_contiguous(x)", 6), "in one piece, 9": each("once_contiguous(x)", 9),
    "in one piece, 12": each("once_contiguous(x)", 12), "in one piece, 40": each("once_contiguous(x)", 40),
    "fields in order, 12": record(12, 12), "fields in order, 30": record(30, 20),
    "a chain of 4000": "A{4000}", "at most 2000": "at_most(2000, A) & [A B]*", "length to 2000, one A": ".{1,2000} & at_most(1, A) & [A B]*",
    "length to 300, 5 A": ".{1,300} & at_most(5, A) & [A B C]*", "A 40 before the end": "(A | B)* A (A | B){40}",
    "no A 10 behind A": "!(.* A .{10} A .*) & [A B]*", "no A B A": "!(.* A .* B .* A .*) & [A B C D]*",
    "before, 12 pairs": f"all x in {{{names('P', 12)}}}: before(B-{{x}}, C-{{x}})",
    "requires, 12 pairs": f"all x in {{{names('P', 12)}}}: requires(B-{{x}}, C-{{x}})",
    "dense repetition": "A{0,3}{142}", "repeated repetition": "A{1}{2}{3}{22}{3}{2}{2}", "gazetteer of 300": gazetteer(300),
    "gazetteer of 3000": gazetteer(3000), "pairs of sets": "([A B C] [D E] | [B C D] [A E])* & at_most(3, A) & at_least(2, D)",
}

# name → pattern: each would take far more than the limits
HOSTILE = {
    "A 40 behind A": "(A | B)* A (A | B){40} A (A | B)*",
    "the same, 61 labels": f"[A {names('L', 60)}]* A [A {names('L', 60)}]{{40}} A [A {names('L', 60)}]*",
    "its complement": "!(.* A .{40} A .*) & (A | B | C)*",
    "complements in a row": "(!(.* A .{18} A .*)) (!(.* B .{18} B .*))",
    "complements that double": chain(60, "A", "!(@ A) | !(@ B)"),
    "names that double": chain(60, "A", "@ @"),
    "subsets in a row": f"({each('at_most(1, x)', 30)}) L0*",
    "ten explosions at once": " & ".join(f"(A | B)* A (A | B){{{k}}} A (A | B)*" for k in range(10, 20)),
    "dense repetition": "A{0,3}{20000}",
    "optional pairs": "((A | B)? (B | C)?){3000}",
    "every label, 5000 times": f"[{names('L', 1900)}]{{5000}}",
    "5000 rules": " & ".join(f"at_most(1, L{i})" for i in range(5000)),
    "flat, 150000 parts": " | ".join(f"A{i % 1000} B{i % 777}" for i in range(150000)),
    "labels of three sets": f"s = {{{names('a', 120)}}}\nlanguage = any x in s: any y in s: any z in s: {{x}}{{y}}{{z}}\n",
    "3600 rules, 60 memories": f"s = {{{names('a', 60)}}}\nlanguage = all x in s: all y in s: before(p{{x}}, q{{y}})\n",
    "ambiguous, 1800 apart": "(A | B)* A (A | B){900} (A | B)* A (A | B){900} | (A | B)* B (A | B){1800} | (A | B)* C (A | B | C){40} C .*",
}
