//! Pictures show what they are given, all of it, and say what they cannot show.

use std::{fs, path::PathBuf};

use burn::tensor::{Device, Int, Tensor};
use burn_init::{
    Error, ErrorKind, ModuleInit as _, Scheme,
    plot::{self, Chart, Curve, LogitSample, Mark, Picture, Series},
    reference::TransformerConfig,
    step_zero::StepZero,
};
use roxmltree::{Document, Node};

fn predicted(scheme: &str) -> StepZero {
    let config = TransformerConfig::new(100, 16, 64, 2, 4);
    let scheme: Scheme = scheme.parse().unwrap();
    let plan = config.build(&Device::flex()).unwrap().plan(&scheme).unwrap();
    plan.predict(&config.architecture()).unwrap()
}

/// A stream of these second moments, as if it had been measured.
fn with_stream(mut start: StepZero, values: [f64; 5]) -> StepZero {
    for (reading, value) in start.stream.iter_mut().zip(values) {
        (reading.second_moment, reading.sd) = (value, Some(value / 10.0));
    }
    start
}

fn svg(chart: Chart) -> String {
    Picture::of(chart).svg().unwrap()
}

fn elements<'a>(document: &'a Document<'_>, tag: &'static str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", tag))).collect()
}

fn number(node: &Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

fn texts(document: &Document<'_>) -> Vec<String> {
    let texts = document.descendants().filter(|node| node.tag_name().name() == "text");
    texts.map(|node| node.text().unwrap_or_default().trim().to_string()).collect()
}

fn points(node: &Node<'_, '_>) -> Vec<(f64, f64)> {
    let pairs = node.attribute("points").unwrap().split_whitespace();
    pairs.map(|pair| pair.split_once(',').unwrap()).map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect()
}

#[test]
fn the_stream_stands_at_its_logarithm() {
    let start = with_stream(predicted("gpt2"), [1e-3, 1e-2, 1e-1, 1.0, 1.0]);
    let svg = svg(plot::stream(&[Curve::new("a < b & c").predicted(&start).measured(&start)]).unwrap());
    let document = Document::parse(&svg).unwrap();

    // Equal factors are equal steps, equal values equal heights, and x is the number of additions; to a unit of rounding.
    let dots: Vec<_> = elements(&document, "circle").iter().map(|dot| (number(dot, "cx"), number(dot, "cy"))).collect();
    assert_eq!(dots.len(), 5);
    let step = dots[0].1 - dots[1].1;
    assert!(step > 100.0, "{dots:?}");
    for pair in dots.windows(2).take(3) {
        assert!((pair[0].1 - pair[1].1 - step).abs() <= 1.0, "{dots:?}");
        assert!((pair[1].0 - pair[0].0 - (dots[1].0 - dots[0].0)).abs() <= 1.0, "{dots:?}");
    }
    assert_eq!(dots[3].1, dots[4].1);

    // The line goes through the dots.
    let lines: Vec<_> = elements(&document, "polyline").iter().map(points).collect();
    assert!(lines.contains(&dots), "{lines:?}");

    // The band is e^(+-2 * 0.1) around it: two tenths of a nepero up, as many down.
    let bands: Vec<_> = elements(&document, "polygon").iter().map(points).collect();
    assert_eq!(bands.len(), 1);
    let reach = 0.2 / 10f64.ln() * step;
    for (i, dot) in dots.iter().enumerate() {
        let (high, low) = (bands[0][i], bands[0][9 - i]);
        assert_eq!((high.0, low.0), (dot.0, dot.0));
        assert!(
            (dot.1 - high.1 - reach).abs() <= 1.5 && (low.1 - dot.1 - reach).abs() <= 1.5,
            "{dot:?} {high:?} {low:?}"
        );
    }

    let texts = texts(&document);
    for text in ["a < b & c", "0.001", "0.01", "0.1", "1", "0", "2", "4", "additions to the residual stream"] {
        assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
    }
    assert!(texts.iter().any(|text| text.contains("± 2 sd of a single seed") && text.contains("dots: measured")));
}

/// A mean of four seeds strays half as far as one.
#[test]
fn the_band_is_that_of_what_is_measured() {
    let start = with_stream(predicted("gpt2"), [1e-2, 1e-1, 1.0, 1.0, 1.0]);
    let mut mean = start.clone();
    mean.seeds = 4;
    let height = |measured: &StepZero| {
        let svg =
            svg(plot::stream(&[Curve::new("").predicted(&start).measured(measured)]).unwrap().y_holds([1e-3, 10.0]));
        let document = Document::parse(&svg).unwrap();
        let band = points(&elements(&document, "polygon")[0]);
        assert!(svg.contains(if measured.seeds == 4 { "a mean of 4 seeds" } else { "a single seed" }));
        band[9].1 - band[0].1
    };
    let ratio = height(&start) / height(&mean);
    assert!((ratio - 2.0).abs() < 0.1, "{ratio}");
}

#[test]
fn without_a_prediction_there_is_no_line_and_no_band() {
    let start = predicted("gpt2");
    let svg = svg(plot::stream(&[Curve::new("seen").measured(&start)]).unwrap());
    let document = Document::parse(&svg).unwrap();
    assert_eq!(elements(&document, "circle").len(), 5);
    assert_eq!(elements(&document, "polygon").len(), 0);
    assert!(!svg.contains("predicted"));
}

/// Several schemes, every chart: names do not meet, and no text leaves the picture.
#[test]
fn everything_can_be_read() {
    let starts =
        ["gpt2", "gpt2-released", "olmo-mitchell", "gpt-neox", "zero-residual"].map(|name| (name, predicted(name)));
    let curves = starts
        .iter()
        .map(|(name, start)| Curve::new(format!("{name}, a rather long name")).predicted(start).measured(start));
    let curves: Vec<_> = curves.collect();
    let charts = [plot::stream(&curves), plot::branches(&curves), plot::gradient(&curves), plot::correlation(&curves)];
    let charts = charts.map(Result::unwrap);
    for picture in charts.iter().cloned().map(Picture::of).chain([Picture::row(charts.iter().cloned())]) {
        let svg = picture.svg().unwrap();
        let document = Document::parse(&svg).unwrap();
        let view: Vec<f64> =
            document.root_element().attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        let mut boxes = Vec::new();
        for text in elements(&document, "text") {
            let size = number(&text, "font-size");
            // The mean width of a letter in DejaVu Sans, which is wider than most.
            let width = 0.525 * size * text.text().unwrap().trim().chars().count() as f64;
            let left = number(&text, "x")
                - width
                    * match text.attribute("text-anchor").unwrap() {
                        "start" => 0.0,
                        "middle" => 0.5,
                        _ => 1.0,
                    };
            let y = number(&text, "y");
            assert!(
                left >= -1.0 && left + width <= view[2] + 1.0 && y > size / 2.0 && y < view[3] - size / 2.0,
                "{text:?}"
            );
            boxes.push((left, left + width, y - size / 2.0, y + size / 2.0, text.text().unwrap().trim().to_string()));
        }
        for (i, a) in boxes.iter().enumerate() {
            let meets =
                |b: &&(f64, f64, f64, f64, String)| a.0 < b.1 && b.0 < a.1 && a.2 + 2.0 < b.3 && b.2 + 2.0 < a.3;
            assert!(boxes[i + 1..].iter().find(meets).is_none(), "{a:?} meets {:?}", boxes[i + 1..].iter().find(meets));
        }
    }
}

/// Branches that start at zero have no logarithm and are shown all the same.
#[test]
fn zeros_stand_on_the_floor() {
    let start = predicted("zero-residual");
    assert!(start.branches.iter().all(|branch| branch.second_moment == 0.0));
    let other = predicted("gpt2");
    let curves = [Curve::new("zero").measured(&start), Curve::new("gpt2").measured(&other)];
    let svg = svg(plot::branches(&curves).unwrap());
    let document = Document::parse(&svg).unwrap();
    let heights: Vec<f64> = elements(&document, "circle").iter().map(|dot| number(dot, "cy")).collect();
    assert_eq!(heights.len(), 8);
    let lowest = heights.iter().copied().fold(0.0, f64::max);
    assert_eq!(heights.iter().filter(|height| **height == lowest).count(), 4);
    let zero = elements(&document, "text").into_iter().find(|text| text.text().unwrap().trim() == "0").unwrap();
    assert_eq!(number(&zero, "y"), lowest);
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let line = |points: &[(f64, f64)]| Chart::new("growth").with(Series::new("a").line(points.iter().copied()));
    let error = |chart: Chart| Picture::of(chart).svg().unwrap_err();
    let cases: [(Error, &str); 8] = [
        (Picture::row([]).svg().unwrap_err(), "the picture has no chart; give it one"),
        (error(Chart::new("growth")), "growth: there is nothing to draw; give at least one point"),
        (
            error(line(&[(0.0, 1.0), (1.0, f64::NAN)])),
            "growth: \"a\" has y = NaN; leave the point out, or find out where the value comes from",
        ),
        (
            error(line(&[(f64::INFINITY, 1.0)])),
            "growth: \"a\" has x = inf; leave the point out, or find out where the value comes from",
        ),
        (error(line(&[(0.0, -1.0)]).log_y()), "growth: \"a\" has y = -1; draw it on a linear axis"),
        (
            error(line(&[(0.0, 1.0)]).mark(Mark::new(f64::NAN, ""))),
            "growth: a mark or a tick is at NaN; leave the point out, or find out where the value comes from",
        ),
        (
            plot::stream(&[]).and_then(|chart| Picture::of(chart).svg()).unwrap_err(),
            "The residual stream before the first step: there is nothing to draw; give at least one point",
        ),
        (
            plot::gradient(&[Curve::new("a").measured(&{
                let mut start = predicted("gpt2");
                start.stream.iter_mut().for_each(|reading| reading.gradient = None);
                start
            })])
            .unwrap_err(),
            "the measurement of \"a\" has no gradient of the stream; call Probe::pass with the stream in the forward pass, on an \
             autodiff device for gradients",
        ),
    ];
    for (error, text) in cases {
        assert_eq!(error.kind(), ErrorKind::Picture);
        assert_eq!(error.to_string(), text);
    }
}

/// Neither one point, nor equal ones, nor the ends of f64 are too much.
#[test]
fn any_finite_points_can_be_drawn() {
    let extremes = [f64::MIN_POSITIVE, 1.0, f64::MAX];
    for values in [vec![0.0], vec![0.0, 0.0], vec![7.0, 7.0], extremes.to_vec()] {
        let points: Vec<_> = values.iter().map(|&value| (value, value)).collect();
        let series = Series::new("").line(points.clone()).dots(points.clone());
        for chart in [Chart::new("").with(series.clone()), Chart::new("").log_x().log_y().with(series.clone().dashed())]
        {
            let svg = svg(chart);
            assert_eq!(elements(&Document::parse(&svg).unwrap(), "circle").len(), values.len());
        }
    }
}

#[test]
fn files_are_whole_or_not_there() {
    let folder = Folder::new();
    let picture = Picture::of(plot::stream(&[Curve::new("gpt2").predicted(&predicted("gpt2"))]).unwrap());
    picture.save(folder.0.join("stream.svg")).unwrap();
    picture.save(folder.0.join("stream.PNG")).unwrap();
    assert_eq!(fs::read_to_string(folder.0.join("stream.svg")).unwrap(), picture.svg().unwrap());
    let png = fs::read(folder.0.join("stream.PNG")).unwrap();
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");

    let error = picture.save(folder.0.join("stream.gif")).unwrap_err().to_string();
    assert!(error.ends_with("stream.gif: a picture is neither of these; end its name with .svg or .png"), "{error}");
    let error = picture.save(folder.0.join("missing/stream.svg")).unwrap_err().to_string();
    assert!(error.contains("missing/stream.svg: it cannot be written: "), "{error}");
    assert!(error.ends_with("; create its folder, or choose one that can be written to"), "{error}");
    // A folder stands where the file should go: the half-written file is taken away again.
    fs::create_dir(folder.0.join("taken.svg")).unwrap();
    picture.save(folder.0.join("taken.svg")).unwrap_err();
    let mut names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["stream.PNG", "stream.svg", "taken.svg"]);
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("burn-init-pictures-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// The bars hold all logits but those of the input tokens, whose own place is marked.
#[test]
fn logits_become_a_density() {
    let device = Device::flex();
    let tokens = Tensor::<2, Int>::from_data([[0, 3]], &device);
    let logits = Tensor::<3>::from_data([[[9.0, -1.0, 1.0, 0.0], [3.0, 5.0, 4.0, 8.0]]], &device);
    let sample = LogitSample::new(&logits, &tokens).unwrap();
    let mut start = predicted("gpt2");
    (start.logit_std, start.own_logit) = (0.8164, Some(6.0));
    let svg = svg(sample.chart(&start).unwrap());
    // -1, 1, 0 and -1, 1, 0: a std of sqrt(2/3); 9 and 4 above the others.
    assert!(svg.contains("measured, std 0.816; orange: predicted, N(0, 0.816²)"), "{svg}");
    assert!(svg.contains("predicted 6.00,") && svg.contains("6.50"), "{svg}");
    let document = Document::parse(&svg).unwrap();
    let bars = points(&elements(&document, "polygon")[0]);
    let base = bars.iter().map(|point| point.1).fold(0.0, f64::max);
    let tops: Vec<f64> = bars.iter().map(|point| base - point.1).filter(|height| *height > 0.0).collect();
    // Three bars of two logits each, two corners a bar.
    assert_eq!(tops.len(), 6, "{bars:?}");
    assert!(tops.iter().all(|top| *top == tops[0]));

    let equal = LogitSample::new(&logits.zeros_like(), &tokens).unwrap().chart(&start).unwrap_err();
    assert_eq!(equal.to_string(), "all logits are equal; there is no distribution to draw: see StepZero::findings");
    let outside = Tensor::<2, Int>::from_data([[0, 4]], &device);
    assert_eq!(LogitSample::new(&logits, &outside).unwrap_err().kind(), ErrorKind::Picture);
    let infinite = logits.clone().div_scalar(0.0);
    assert!(LogitSample::new(&infinite, &tokens).unwrap_err().to_string().starts_with("a logit is "));
}
