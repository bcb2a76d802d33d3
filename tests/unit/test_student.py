"""Student's t, the beta and the binomial: against scipy, and by their laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.distributions import beta_below, beta_quantile, binomial_at_most
from bakeoff.stats.distributions import student_quantile as quantile
from bakeoff.stats.distributions import student_two_sided as two_sided

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


@pytest.mark.parametrize("shapes", [(0.5, 0.5), (3, 7), (27.5, 13.5), (1, 200), (700, 300)])
@pytest.mark.parametrize("p", [0.001, 0.025, 0.5, 0.975])
def test_beta_quantiles_agree_with_scipy(shapes: tuple[float, float], p: float) -> None:
    expected = float(stats.beta.ppf(p, *shapes))
    assert beta_quantile(p, *shapes) == pytest.approx(expected, rel=1e-9)
    assert beta_below(expected, *shapes) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize(
    ("k", "n", "p"), [(0, 10, 0.5), (3, 10, 0.2), (499, 1000, 0.5), (10, 10, 0.9)]
)
def test_binomial_sums_agree_with_scipy(k: int, n: int, p: float) -> None:
    assert binomial_at_most(k, n, p) == pytest.approx(float(stats.binom.cdf(k, n, p)), rel=1e-9)
