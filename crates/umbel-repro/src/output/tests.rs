use super::scale::Scale;
use super::*;

fn row(measured: f64, low: f64, high: f64) -> Row {
    Row {
        figure: "3".to_owned(),
        what: "R(10), client loss 2 %".to_owned(),
        reported: "460 s".to_owned(),
        measured,
        unit: "s",
        low,
        high,
        kind: Kind::Near,
        certainty: Certainty::Exact,
        remark: None,
        doubt: None,
        place: None,
        range: None,
    }
}

fn series(name: &str, points: &[(f64, f64, f64)]) -> Series {
    Series {
        name: name.to_owned(),
        points: points.iter().map(|&(x, y, ci95)| Point { x, y, ci95 }).collect(),
    }
}

fn figure(series: Vec<Series>) -> Figure {
    let panel = Panel {
        title: String::new(),
        x_label: "loss, %".to_owned(),
        y_label: "delay, s".to_owned(),
        series,
        ..Panel::default()
    };
    Figure {
        id: FigureId::Paper(3),
        title: "Delay over loss".to_owned(),
        panels: vec![panel],
        caption: "First.\n\nSecond.".to_owned(),
    }
}

fn report(figures: Vec<Figure>, rows: Vec<Row>) -> Report {
    Report {
        paper: "repository",
        title: "A paper".to_owned(),
        intro: String::new(),
        figures,
        rows,
        sections: Vec::new(),
        notes: vec![Note { title: "A <choice>".to_owned(), text: "a & b".to_owned() }],
        settings: vec![("seeds".to_owned(), "5".to_owned())],
    }
}

fn small() -> Report {
    let curve = series("R(10)", &[(0.0, 400.5, 0.0), (2.0, 460.0, 12.25)]);
    let order = Row { unit: "", kind: Kind::Order, ..row(f64::NAN, f64::NEG_INFINITY, 1.0) };
    report(vec![figure(vec![curve])], vec![row(461.25, 391.0, 529.0), order])
}

fn written(report: &Report, name: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    report.write(&dir.path().join("new/dir")).unwrap();
    std::fs::read_to_string(dir.path().join("new/dir").join(name)).unwrap()
}

/// Returns an SVG file after checking that it is well-formed and has numbers where they belong.
fn checked_svg(figure: &Figure) -> String {
    let text = svg::document(figure);
    let document = roxmltree::Document::parse(&text).unwrap();
    for element in document.descendants() {
        for name in ["d", "x", "y", "cx", "cy", "width", "height", "viewBox", "transform"] {
            let value = element.attribute(name).unwrap_or_default();
            assert!(!value.contains("NaN") && !value.contains("inf"), "{name}=\"{value}\"");
        }
    }
    text
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn tables_are_written_as_promised() {
    assert_eq!(
        written(&small(), "table.csv"),
        "figure,what,reported,measured,measured_low,measured_high,low,high,verdict,kind,p,p_holm,why\n\
         3,\"R(10), client loss 2 %\",460 s,461.25,461.25,461.25,391,529,ok,near,NaN,NaN,\n\
         3,\"R(10), client loss 2 %\",460 s,NaN,NaN,NaN,-inf,1,miss,order,NaN,NaN,\n"
    );
    assert_eq!(
        written(&small(), "fig3.csv"),
        "series,x,y,ci95\nR(10),0,400.5,0\nR(10),2,460,12.25\n"
    );
}

#[test]
fn fields_are_quoted_where_they_must_be() {
    let names = ["a,b", "say \"x\"", "two\nlines", "R(∞)", " plain "];
    let curves = names.iter().map(|name| series(name, &[(1.0, 2.0, 0.0)])).collect();
    assert_eq!(
        csv::figure(&figure(curves)),
        "series,x,y,ci95\n\"a,b\",1,2,0\n\"say \"\"x\"\"\",1,2,0\n\"two\nlines\",1,2,0\n\
         R(∞),1,2,0\n plain ,1,2,0\n"
    );
}

#[test]
fn fields_read_back_and_broken_lines_do_not() {
    for fields in [
        vec!["a", "", "b"],
        vec![""],
        vec!["", ""],
        vec!["a,b", "say \"x\"", "\"", "\"\","],
        vec!["Point { policy: \"R(inf)\", fill: false }", "1", "0.5 NaN inf"],
    ] {
        let fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
        let line = csv::row(&fields);
        assert_eq!(csv::fields(line.trim_end()), Some(fields));
    }
    for broken in ["\"a", "\"a\"b,c", "a,\"b", "\"\"\""] {
        assert_eq!(csv::fields(broken), None, "{broken}");
    }
}

#[test]
fn numbers_in_tables_keep_all_digits() {
    let third = 1.0 / 3.0;
    let text = csv::figure(&figure(vec![series("a", &[(third, 1e-7, 1e9)])]));
    let fields: Vec<f64> =
        text.lines().nth(1).unwrap().split(',').skip(1).map(|n| n.parse().unwrap()).collect();
    assert_eq!(fields, [third, 1e-7, 1e9]);
}

#[test]
fn bounds_belong_to_what_agrees() {
    for (measured, low, high, verdict) in [
        (1.0, 1.0, 2.0, Verdict::Ok),
        (2.0, 1.0, 2.0, Verdict::Ok),
        (1.0 - f64::EPSILON, 1.0, 2.0, Verdict::Miss),
        (2.0 + 2.0 * f64::EPSILON, 1.0, 2.0, Verdict::Miss),
        (3.0, 3.0, 3.0, Verdict::Ok),
        (1e9, 1.0, f64::INFINITY, Verdict::Ok),
        (-1e9, f64::NEG_INFINITY, 1.0, Verdict::Ok),
        (f64::NAN, f64::NEG_INFINITY, f64::INFINITY, Verdict::Miss),
        (1.5, 2.0, 1.0, Verdict::Miss),
        (1.5, f64::NAN, 2.0, Verdict::Miss),
    ] {
        assert_eq!(row(measured, low, high).verdict(), verdict, "{low} ≤ {measured} ≤ {high}");
    }
    assert_eq!(small().count(Verdict::Miss), 1);
}

#[test]
fn a_bound_within_the_interval_decides_nothing() {
    // Half of the interval is 2.776 times the error.
    let estimated = |error| Certainty::Estimated { error, freedom: 4 };
    for (measured, certainty, verdict) in [
        (1.5, estimated(0.17), Verdict::Ok),
        (1.3, estimated(0.17), Verdict::Undecided),
        (1.7, estimated(0.17), Verdict::Undecided),
        (1.5, estimated(1.0), Verdict::Undecided),
        (0.5, estimated(0.17), Verdict::Miss),
        (2.5, estimated(0.17), Verdict::Miss),
        (1.5, estimated(f64::NAN), Verdict::Undecided),
        (1.5, estimated(0.0), Verdict::Ok),
        (1.5, Certainty::Unknown, Verdict::Undecided),
        (1.5, Certainty::Exact, Verdict::Ok),
    ] {
        let row = Row { certainty, ..row(measured, 1.0, 2.0) };
        assert_eq!(row.verdict(), verdict, "{certainty:?}");
        let doubted = Row { doubt: Some("it drifts"), ..row };
        assert_eq!(doubted.verdict(), Verdict::Undecided);
    }
    let nothing = Row { certainty: Certainty::Unknown, ..row(f64::NAN, 1.0, 2.0) };
    assert_eq!(nothing.verdict(), Verdict::Miss);
}

#[test]
fn a_number_from_which_nothing_follows_is_told_and_not_judged() {
    for measured in [1.5, 9.0, f64::NAN] {
        let row = row(measured, 1.0, 2.0).unjudged("it is <so> by construction");
        assert_eq!(row.verdict(), Verdict::Remark);
        let report = report(Vec::new(), vec![row]);
        assert_eq!((report.judged(), report.count(Verdict::Remark)), (0, 1));
        let page = html::page(&report);
        assert!(page.contains("0 of 0 within tolerance") && page.contains("1 not judged"));
        assert!(page.contains("(it is &lt;so&gt; by construction)"), "{page}");
        assert!(csv::table(&report).contains(",remark,near,NaN,NaN,it is <so>"));
    }
}

#[test]
fn ticks_are_round_numbers_within_the_axis() {
    let ticks = |extent, about, whole| -> Vec<String> {
        Scale::new(extent, about, whole).ticks().into_iter().map(|(_, name)| name).collect()
    };
    assert_eq!(ticks((0.0, 30.0), 6, false), ["0", "5", "10", "15", "20", "25", "30"]);
    assert_eq!(ticks((7.0, 930.0), 4, true), ["0", "250", "500", "750", "1,000"]);
    assert_eq!(ticks((0.0, 0.3), 3, true), ["0", "0.1", "0.2", "0.3"]);
    assert_eq!(ticks((0.0, 8.0), 8, true).len(), 9);
    assert_eq!(ticks((-1.0, 1.0), 4, true), ["−1.0", "−0.5", "0", "0.5", "1.0"]);
    assert_eq!(ticks((0.0, 12_000.0), 2, false), ["0", "10,000"]);
    assert_eq!(ticks((90.0, 100.0), 2, true), ["90", "95", "100"]);
    assert_eq!(ticks((0.0, 3e-6), 3, true), ["0", "1e−6", "2e−6", "3e−6"]);
}

#[test]
fn an_axis_has_a_few_ticks_whatever_the_range() {
    let values = [-1e299, -3.0, -1e-300, 0.0, 1e-300, 1e-9, 0.1, 1.0, 7.3, 1e6, 1e6 + 1e-5, 1e299];
    for low in values {
        for high in values.into_iter().filter(|&high| high >= low) {
            for whole in [false, true] {
                let scale = Scale::new((low, high), 8, whole).onto(0.0, 100.0);
                let ticks = scale.ticks();
                assert!((2..=12).contains(&ticks.len()), "{low}–{high}: {ticks:?}");
                for (value, _) in &ticks {
                    assert!((-0.01..=100.01).contains(&scale.pixel(*value)), "{low}–{high}");
                }
                for value in [low, high] {
                    assert!((-0.01..=100.01).contains(&scale.pixel(value)), "{low}–{high}");
                }
            }
        }
    }
}

#[test]
fn numbers_are_shown_as_people_write_them() {
    for (value, text) in [
        (0.0, "0"),
        (460.0, "460"),
        (461.26, "461.3"),
        (999.96, "1,000"),
        (1_234.5, "1,234"),
        (12_345_678.0, "12,345,678"),
        (-0.5, "−0.5"),
        (1.0 / 3.0, "0.3333"),
        (1.5e-7, "1.500e−7"),
        (f64::NAN, "–"),
        (f64::INFINITY, "∞"),
    ] {
        assert_eq!(number::rounded(value), text);
    }
    assert_eq!(number::range(391.0, 529.0, "s"), "391 – 529\u{a0}s");
    assert_eq!(number::range(f64::NEG_INFINITY, 1.0, ""), "≤ 1");
    assert_eq!(number::range(0.5, f64::INFINITY, "%"), "≥ 0.5\u{a0}%");
    assert_eq!(number::range(3.0, 3.0, ""), "3");
    assert_eq!(number::range(f64::NEG_INFINITY, 1.0_f64.next_down(), ""), "< 1");
    assert_eq!(number::range(1.0_f64.next_up(), f64::INFINITY, ""), "> 1");
}

#[test]
fn a_plot_has_a_line_a_marker_and_a_bar_where_they_belong() {
    let text = checked_svg(&small().figures[0]);
    // The legend has one more of each.
    assert_eq!(count(&text, "class=\"line\""), 2);
    assert_eq!(count(&text, "<circle"), 3);
    assert_eq!(count(&text, "class=\"bar\""), 1);
    assert!(text.contains("R(10): 460 at 2, ± 12.25"), "{text}");
}

#[test]
fn the_papers_own_points_are_hollow_stars_in_the_plot() {
    let marked = row(461.0, 391.0, 529.0).at("", "R(10)", (3.0, 900.0));
    let elsewhere = Row { figure: "4".to_owned(), ..marked.clone() };
    let mut figures = vec![figure(vec![series("R(10)", &[(0.0, 400.0, 0.0), (2.0, 460.0, 9.0)])])];
    mark(&mut figures, &[marked.clone(), elsewhere, row(1.0, 0.0, 2.0)]);
    let text = checked_svg(&figures[0]);
    // The legend has one more.
    assert_eq!(count(&text, "class=\"star\""), 2);
    assert!(text.contains("R(10): 900 at 3, reported as 460 s"), "{text}");
    assert!(text.contains(">reported<"), "{text}");
    assert!(csv::figure(&figures[0]).contains("\nR(10) (reported),3,900,NaN\n"));
    mark(&mut figures, &[marked.at("another panel", "R(10)", (3.0, 900.0))]);
    assert_eq!(count(&checked_svg(&figures[0]), "class=\"star\""), 0);
}

#[test]
fn legends_have_room_for_wide_letters() {
    let width = |name: &str| -> f64 {
        let text = checked_svg(&figure(vec![series(name, &[(0.0, 1.0, 0.0)])]));
        let document = roxmltree::Document::parse(&text).unwrap();
        document.root_element().attribute("width").unwrap().parse().unwrap()
    };
    // Widths in pixels of 13.5 in DejaVu Sans, which a browser without better fonts takes.
    for (name, needed) in [("maximum", 71.0), ("BURST_BASEP", 99.0), ("WIN_BASEP", 83.0)] {
        assert!(width(name) - width("") > needed, "{name}");
    }
}

#[test]
fn texts_cannot_break_the_plot_nor_the_page() {
    let evil = "</text><script>\"&'\u{0}\u{1b}";
    let mut figure = figure(vec![series(evil, &[(0.0, 1.0, 0.1)])]);
    figure.title = evil.into();
    let panel = &mut figure.panels[0];
    (panel.title, panel.x_label, panel.y_label) = (evil.into(), evil.into(), evil.into());
    assert!(!checked_svg(&figure).contains("<script"));
    figure.caption = evil.to_owned();
    let mut report = report(vec![figure], vec![row(1.0, 0.0, 2.0)]);
    (report.title, report.intro) = (evil.into(), evil.into());
    (report.rows[0].what, report.rows[0].figure) = (evil.into(), evil.into());
    report.settings.push((evil.into(), evil.into()));
    let page = html::page(&report);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
}

#[test]
fn curves_without_points_or_with_one_are_drawn() {
    for curves in [
        vec![],
        vec![series("none", &[])],
        vec![series("one", &[(5.0, 7.0, 0.0)])],
        vec![series("zero", &[(0.0, 0.0, 0.0)]), series("none", &[])],
        vec![series("flat", &[(1.0, 3.0, 0.0), (2.0, 3.0, 0.0)])],
    ] {
        checked_svg(&figure(curves));
    }
    assert!(checked_svg(&figure(vec![])).contains("no data"));
}

#[test]
fn panels_stand_one_below_the_other_and_name_their_series() {
    let mut figure = figure(vec![series("a", &[(0.0, 1.0, 0.0)])]);
    figure.panels[0].title = "Latency".to_owned();
    figure.panels.push(Panel { title: "Exposure".to_owned(), ..figure.panels[0].clone() });
    figure.id = FigureId::Beyond(2);
    let height = |text: &str| -> f64 {
        let document = roxmltree::Document::parse(text).unwrap();
        document.root_element().attribute("height").unwrap().parse().unwrap()
    };
    let text = checked_svg(&figure);
    assert_eq!(count(&text, "class=\"axis\""), 2);
    assert!(text.contains("Beyond the paper 2: Delay") && text.contains(">Exposure<"));
    assert!(height(&text) > 2.0 * 380.0);
    assert_eq!(csv::figure(&figure), "series,x,y,ci95\nLatency: a,0,1,0\nExposure: a,0,1,0\n");
    let report = report(vec![figure], vec![]);
    assert_eq!(count(&html::page(&report), "<svg"), 2);
    assert_eq!(written(&report, "beyond2.svg"), text);
}

#[test]
fn points_that_are_no_numbers_leave_a_gap() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let points =
        [(0.0, 1.0, nan), (1.0, 2.0, inf), (2.0, nan, 1.0), (3.0, 4.0, -1.0), (inf, 1.0, 0.0)];
    let text = checked_svg(&figure(vec![series("gaps", &points)]));
    // There are two parts of a curve of three points, and no bar of unknown length.
    let path = text.split("class=\"line\" d=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!((count(path, "M"), count(path, "L")), (2, 1), "{path}");
    assert_eq!(count(&text, "class=\"bar\""), 0);
    checked_svg(&figure(vec![series("none", &[(nan, nan, nan), (1e308, -1e308, 1e308)])]));
}

#[test]
fn curves_are_cut_where_the_axis_ends() {
    let points = [(0.0, 100.0, 0.0), (2.0, 300.0, 0.0), (4.0, 900.0, 0.0), (6.0, 100.0, 5.0)];
    let mut figure = figure(vec![series("high", &points)]);
    figure.panels[0].y_limit = Some(200.0);
    let text = checked_svg(&figure);
    // The path goes up to the end at x = 1, and down again from x = 5.75.
    let path = text.split("class=\"line\" d=\"").nth(1).unwrap().split('"').next().unwrap();
    let [a, b, c, d] = [0.0, 1.0, 5.75, 6.0].map(|x| 10.0 + 580.0 * x / 6.0);
    assert_eq!(path, format!("M{a:.1} 190.0L{b:.1} 0.0M{c:.1} 0.0L{d:.1} 190.0"));
    // There are two markers, and one in the legend.
    assert_eq!(count(&text, "<circle"), 3);
    assert_eq!(count(&csv::figure(&figure), "\n"), 5, "the table has everything");
}

#[test]
fn sections_have_figures_and_tables_of_their_own() {
    let mut report = small();
    let own = Figure {
        id: FigureId::Beyond(1),
        title: "Shares".to_owned(),
        ..figure(vec![series("auto", &[(0.0, 1.0, 0.0)])])
    };
    let cells = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
    let table = Table {
        name: "readings",
        head: cells(["reading", "delay"]),
        rows: vec![cells(["one, <two>", "1234.5678"])],
    };
    report.sections.push(Section {
        title: "Beyond".to_owned(),
        text: "More.".to_owned(),
        figures: vec![own],
        tables: vec![table],
    });
    report.rows.push(Row { figure: "beyond 1".to_owned(), ..row(1.0, 0.0, 2.0) });
    assert_eq!(written(&report, "readings.csv"), "reading,delay\n\"one, <two>\",1234.5678\n");
    assert_eq!(written(&report, "beyond1.csv"), "series,x,y,ci95\nauto,0,1,0\n");
    let page = written(&report, "report.html");
    assert!(page.contains("href=\"#beyond1\"") && page.contains("id=\"beyond1\""), "{page}");
    assert!(page.contains("<td>one, &lt;two&gt;</td><td class=\"number\">1,235</td>"), "{page}");
}

#[test]
fn dozens_of_curves_look_different_and_have_room() {
    let curves: Vec<Series> =
        (0..40).map(|i| series(&format!("curve {i}"), &[(0.0, f64::from(i), 0.0)])).collect();
    let text = checked_svg(&figure(curves));
    let document = roxmltree::Document::parse(&text).unwrap();
    let looks: std::collections::BTreeSet<_> = document
        .descendants()
        .filter(|element| element.attribute("class") == Some("line"))
        .map(|line| {
            let class = line.parent().unwrap().attribute("class");
            (class, line.attribute("stroke-dasharray"))
        })
        .collect();
    assert_eq!(looks.len(), 40);
    let height: f64 = document.root_element().attribute("height").unwrap().parse().unwrap();
    assert!(height > 40.0 * 22.0);
}

#[test]
fn the_page_marks_misses_and_leads_to_figures() {
    let page = written(&small(), "report.html");
    assert_eq!(count(&page, "<tr class=\"miss\">"), 1);
    assert!(page.contains("1 of 2 within tolerance") && page.contains("1 missed"));
    assert!(page.contains("href=\"#fig3\"") && page.contains("id=\"fig3\""));
    assert!(page.contains("<p>First.</p>\n<p>Second.</p>"));
    assert!(page.contains("A &lt;choice&gt;") && page.contains("a &amp; b"));
    let links: Vec<&str> = page.split("href=\"").skip(1).collect();
    assert!(links.iter().all(|link| link.starts_with(['#', 'f'])), "nothing else is needed");
}

#[test]
fn lines_at_the_quartiles_of_a_sample_cross_the_plot() {
    let points: Vec<_> = (1..=5).map(|n| (f64::from(n), f64::from(n * n), 0.0)).collect();
    let mut figure = figure(vec![series("graphs", &points), series("few", &points[..3])]);
    assert!(!checked_svg(&figure).contains("class=\"quartile\""));
    figure.panels[0].is_sample = true;
    let svg = checked_svg(&figure);
    // Two lines of the curve with at least four points, and the one in the legend.
    assert_eq!(svg.matches("class=\"quartile\"").count(), 3);
    assert!(svg.contains("graphs: lower quartile 4") && svg.contains("graphs: upper quartile 16"));
    assert!(svg.contains("quartiles of the points"));
}

#[test]
fn what_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = small().write(&file.join("dir")).unwrap_err();
    assert!(matches!(&error, OutputError::Directory { path, .. } if *path == file.join("dir")));
    std::fs::create_dir(dir.path().join("table.csv")).unwrap();
    let error = small().write(dir.path()).unwrap_err();
    assert!(error.to_string().contains("table.csv"), "{error}");
}

#[test]
fn a_directory_is_found_ready_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine"), "").unwrap();
    prepare(dir.path()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn verdicts_are_corrected_for_their_number() {
    let estimated = |error| {
        let certainty = Certainty::Estimated { error, freedom: 4 };
        Row { certainty, ..row(1.5, 1.0, 2.0) }
    };
    // The last is exact, and no comparison.
    let rows = vec![estimated(0.1), estimated(0.17), estimated(0.001), row(1.5, 1.0, 2.0)];
    let report = report(Vec::new(), rows);
    let p: Vec<f64> = report.rows.iter().map(Row::p).collect();
    let holm = report.holm();
    assert!((holm[2] - 3.0 * p[2]).abs() < 1e-12 && (holm[0] - 2.0 * p[0]).abs() < 1e-12);
    assert!((holm[1] - p[1]).abs() < 1e-12 && holm[3].is_nan(), "{holm:?}");
    let page = html::page(&report);
    assert!(page.contains("3 of the 3 estimated numbers that are ok stay so"), "{page}");
}

#[test]
fn reported_ranges_are_bands_and_points_that_have_not_settled_are_hollow() {
    let mut figures = vec![figure(vec![series("R(10)", &[(0.0, 1.0, 0.1), (2.0, 3.0, 0.1)])])];
    let row = row(1.0, 0.0, 2.0).along("", "R(10)", (4.0, 5.0));
    mark(&mut figures, &[row]);
    figures[0].panels[0].hollow.push(("R(10)".to_owned(), 2.0));
    let plot = svg::document(&figures[0]);
    roxmltree::Document::parse(&plot).unwrap();
    // Each has a sign in the legend.
    assert_eq!((count(&plot, "class=\"band\""), count(&plot, "class=\"open\"")), (2, 2), "{plot}");
    assert!(plot.contains("reported range") && plot.contains("not settled"));
    let table = csv::figure(&figures[0]);
    assert!(table.contains("R(10) (reported),NaN,4,NaN\nR(10) (reported),NaN,5,NaN\n"), "{table}");
}

#[test]
fn the_index_links_each_report_with_its_counts() {
    let report = Report {
        paper: "lms",
        title: "A & B".to_owned(),
        intro: String::new(),
        figures: Vec::new(),
        rows: vec![
            row(1.0, 0.0, 2.0),
            row(3.0, 0.0, 2.0),
            row(4.0, 0.0, 2.0),
            row(1.0, 0.0, 2.0).unjudged("by definition"),
        ],
        sections: Vec::new(),
        notes: Vec::new(),
        settings: Vec::new(),
    };
    let page = html::index(&[report]);
    let counts = [3, 1, 2, 0, 1].map(|count| format!("<td class=\"number\">{count}</td>"));
    let link = "<td><a href=\"lms/report.html\">A &amp; B</a></td>";
    assert!(page.contains(&format!("{link}{}", counts.concat())), "{page}");
}

#[test]
fn bars_lie_on_both_sides_of_what_was_chosen() {
    let named = |text: &str, length: f64| Some((text.to_owned(), length));
    let bars = vec![
        Bar { name: "a < b: 15 s".to_owned(), sides: [named("7.5 s", 4.0), named("30 s", 2.0)] },
        Bar { name: "other".to_owned(), sides: [None, named("yes", 0.0)] },
    ];
    let panel = Panel { x_label: "numbers that flip".to_owned(), bars, ..Panel::default() };
    let figure = Figure {
        id: FigureId::Sensitivity,
        title: "What hinges on it".to_owned(),
        panels: vec![panel],
        caption: String::new(),
    };
    let text = svg::document(&figure);
    let svg = roxmltree::Document::parse(&text).unwrap();
    let rects: Vec<_> = svg
        .descendants()
        .filter(|node| node.attribute("class") == Some("filled"))
        .map(|node| ["x", "width"].map(|key| node.attribute(key).unwrap().parse::<f64>().unwrap()))
        .collect();
    let [[left, long], [right, short], [_, none]] = rects[..] else { panic!("{rects:?}") };
    assert!((left + long).abs() < 0.1 && right.abs() < 0.1 && none.abs() < 0.1);
    assert!((long - 2.0 * short).abs() < 0.1);
    let texts = svg.descendants().filter(roxmltree::Node::is_text);
    let texts: Vec<&str> = texts.filter_map(|node| node.text()).collect();
    let ticks = texts.iter().filter_map(|text| text.parse().ok()).collect::<Vec<u32>>();
    assert_eq!(ticks, [0, 1, 1, 2, 2, 3, 3, 4, 4], "whole numbers on both sides");
    for expected in ["a < b: 15 s", "7.5 s: 4", "30 s: 2", "yes: 0", "numbers that flip"] {
        assert!(texts.contains(&expected), "{texts:?}");
    }
    assert_eq!(
        csv::figure(&figure),
        "series,x,y,ci95\na < b: 15 s: 7.5 s,-1,4,0\na < b: 15 s: 30 s,1,2,0\nother: yes,1,0,0\n"
    );
    let page = html::page(&report(vec![figure], Vec::new()));
    assert!(page.contains("tornado.svg") && page.contains("7.5 s: 4"));
}
