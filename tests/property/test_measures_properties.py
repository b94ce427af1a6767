"""A comparison with a number of too many digits is made with one that DynamoDB can hold, and comes out alike."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from framework.codec import number_text
from framework.measures import EXACT, at_or_above

signs = st.sampled_from([1, -1])
held = st.one_of(
    st.just(Decimal(0)),
    st.builds(
        lambda sign, digits, exponent: Decimal(sign * digits).scaleb(exponent, EXACT),
        signs,
        st.integers(1, 10**38 - 1),
        st.integers(-130, 88),
    ),
)


@given(limit=held, added=held, kept=held)
def test_what_is_held_reaches_a_difference_exactly_if_it_reaches_the_number_above_it(
    limit: Decimal, added: Decimal, kept: Decimal
) -> None:
    exact = EXACT.subtract(limit, added)
    above = at_or_above(exact)
    if above is None:
        assert kept < exact
        return
    number_text(above)  # DynamoDB takes it
    assert (kept >= exact) == (kept >= above)


@given(value=held)
def test_what_dynamodb_can_hold_stays(value: Decimal) -> None:
    assert at_or_above(value) == value
