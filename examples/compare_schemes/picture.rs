//! The pictures.

use std::{error::Error, path::Path};

use plotters::{coord::Shift, prelude::*};

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A name, and a value for each place of the other axis.
pub type Curve = (String, Vec<f64>);

fn canvas(path: &Path, size: (u32, u32)) -> Result<Canvas<'_>, Box<dyn Error>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let canvas = SVGBackend::new(path, size).into_drawing_area();
    canvas.fill(&WHITE)?;
    Ok(canvas)
}

/// The smallest and the largest finite value, with a margin.
fn range<'a>(values: impl Iterator<Item = &'a f64>) -> std::ops::Range<f64> {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), &v| (low.min(v), high.max(v)));
    if low > high { 1.0..10.0 } else { low / 1.03..high * 1.03 }
}

/// The loss over the steps, smoothed over a twentieth of them.
pub fn curves(path: &Path, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let steps = curves.iter().map(|(_, losses)| losses.len()).max().unwrap_or(0);
    let window = (steps / 20).max(1);
    let smooth = |losses: &[f64]| -> Vec<f64> {
        let mean = |i: usize| {
            let part = &losses[(i + 1).saturating_sub(window)..=i];
            part.iter().sum::<f64>() / part.len() as f64
        };
        (0..losses.len()).map(mean).collect()
    };
    let smoothed: Vec<Curve> = curves.iter().map(|(name, losses)| (name.clone(), smooth(losses))).collect();
    // One that starts far above the others may leave the picture for its first steps.
    let starts = smoothed.iter().filter_map(|(_, losses)| losses.first().copied());
    let top = 1.5 * starts.fold(f64::INFINITY, f64::min);
    let losses = range(smoothed.iter().flat_map(|(_, losses)| losses));
    let canvas = canvas(path, (800, 500))?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(format!("training loss, mean of the last {window} steps"), ("sans-serif", 20))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(1.0..steps.max(2) as f64, losses.start..losses.end.min(top))?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc("loss in nats")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.1}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (i, (name, losses)) in smoothed.into_iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        let points = losses.into_iter().enumerate().map(|(i, loss)| ((i + 1) as f64, loss));
        chart
            .draw_series(LineSeries::new(points.filter(|point| point.1.is_finite()), color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 15, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    canvas.present()?;
    Ok(())
}

/// A panel for each depth: the loss of held-out text over the learning rate, with the standard error over the seeds.
pub struct Panel {
    pub title: String,
    /// For each scheme its mean loss at each learning rate, and the standard error of it.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

pub fn panels(path: &Path, rates: &[f64], panels: &[Panel]) -> Result<(), Box<dyn Error>> {
    let canvas = canvas(path, (460 * panels.len() as u32, 460))?;
    let points = panels.iter().flat_map(|panel| &panel.curves).flat_map(|(_, points)| points);
    let mut losses = range(points.map(|(loss, _)| loss));
    // Room for the names.
    losses.end += 0.5 * (losses.end - losses.start);
    // The rates are a geometric row: one step of the axis each.
    let last = rates.len() as f64 - 1.0;
    for (area, panel) in canvas.split_evenly((1, panels.len())).iter().zip(panels) {
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, ("sans-serif", 20))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(-0.2..last + 0.2, losses.clone())?;
        chart
            .configure_mesh()
            .x_desc("highest learning rate")
            .y_desc("held-out loss in nats")
            .y_label_formatter(&|y| format!("{y:.1}"))
            .x_labels(rates.len())
            .x_label_formatter(&|x| rates.get(x.round() as usize).map_or(String::new(), f64::to_string))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (i, (name, points)) in panel.curves.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            let points: Vec<_> =
                (0..points.len()).map(|i| (i as f64, points[i])).filter(|(_, (loss, _))| loss.is_finite()).collect();
            chart
                .draw_series(LineSeries::new(points.iter().map(|(x, y)| (*x, y.0)), color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 15, y)], color.stroke_width(2)));
            chart.draw_series(points.iter().map(|(x, (loss, error))| {
                PathElement::new([(*x, loss - error), (*x, loss + error)], color.stroke_width(1))
            }))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperMiddle)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()?;
    }
    canvas.present()?;
    Ok(())
}
