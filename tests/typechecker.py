"""The checker that the tests put on every function of ubex: beartype, with `float` counting as `complex` as in PEP 484."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
