"""Student's t: against scipy, and by their laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.estimate import student_quantile as quantile
from bakeoff.stats.estimate import student_two_sided as two_sided

_DEGREES = st.one_of(st.integers(1, 300), st.integers(1, 10**6))


@given(st.floats(0.5, 1 - 1e-9), _DEGREES)
def test_a_quantile_is_that_of_scipy(p: float, df: int) -> None:
    assert quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-10, abs=1e-11)


@given(st.floats(0.5, 1 - 1e-9), _DEGREES)
def test_below_the_middle_is_the_mirror_of_above(p: float, df: int) -> None:
    assert quantile(1 - p, df) == pytest.approx(-quantile(p, df), rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("df", [1, 2, 7, 1000])
def test_half_of_all_values_lie_below_0(df: int) -> None:
    assert quantile(0.5, df) == 0


@pytest.mark.parametrize("p", [0.6, 0.975, 0.9999])
def test_one_degree_of_freedom_is_the_distribution_of_cauchy(p: float) -> None:
    assert quantile(p, 1) == pytest.approx(1 / math.tan(math.pi * (1 - p)), rel=1e-12)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (-0.1, 3), (0.9, 0), (math.nan, 3)])
def test_what_has_no_quantile_is_refused(p: float, df: int) -> None:
    with pytest.raises(ValueError, match="need 0 < p < 1 and df >= 1"):
        quantile(p, df)


@given(st.floats(-50, 50), _DEGREES)
def test_a_p_value_is_that_of_scipy(t: float, df: int) -> None:
    assert two_sided(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9, abs=1e-13)
    assert two_sided(-t, df) == two_sided(t, df)


@pytest.mark.parametrize(("t", "df"), [(math.nan, 3), (math.inf, 3), (1.0, 0)])
def test_what_has_no_p_value_is_refused(t: float, df: int) -> None:
    with pytest.raises(ValueError, match="need a finite t and df >= 1"):
        two_sided(t, df)
