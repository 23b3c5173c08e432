from tiphys_cli.bench.plots import Bars, svg


def test_a_plot_names_its_values_and_escapes_its_texts() -> None:
    picture = svg(Bars("a < b", "ms", ["10 names", "100 names"], [("ours", [0.5, None]), ("floor", [0.25, 0.3])]))
    assert picture.startswith("<svg ")
    assert "a &lt; b" in picture
    assert "10 names, ours: 0.5 ms" in picture
    assert picture.count("<rect") == 1 + 2 + 3  # background, keys, bars that have a value
