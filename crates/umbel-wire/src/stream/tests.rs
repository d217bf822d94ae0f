use super::*;

fn stream() -> Stream {
    let fec = Some(LayerFec { source_symbols: 8, repair_symbols: 4 });
    Stream {
        name: "lecture".parse().unwrap(),
        tsi: Tsi(3417),
        source: "192.0.2.2:40123".parse().unwrap(),
        base: Channel {
            source: Some([192, 0, 2, 2].into()),
            group: [232, 7, 7, 7].into(),
            port: 7704,
        },
        control: Some(Channel { source: None, group: [239, 255, 7, 7].into(), port: 7705 }),
        scope: 32,
        mode: StreamMode::Cumulative,
        symbol_len: 1372,
        layers: vec![
            LayerInfo { kbit_per_s: 128, fec },
            LayerInfo { kbit_per_s: 320, fec: None },
            LayerInfo { kbit_per_s: 640, fec: None },
        ],
        content: "video 1 640x360 30/1".parse().unwrap(),
        repair: None,
        version: 1,
    }
}

fn rtp_formats() -> Vec<RtpFormat> {
    let format = |payload_type, map: &str, parameters: Option<&str>| RtpFormat {
        kind: "video".to_owned(),
        payload_type,
        map: Some(map.to_owned()),
        parameters: parameters.map(str::to_owned),
    };
    vec![
        format(96, "H264/90000", Some("packetization-mode=1; profile-level-id=42C01E")),
        format(97, "H264-SVC/90000", None),
        RtpFormat { map: None, ..format(34, "", None) },
    ]
}

fn parse(text: &str) -> Result<Option<Stream>, ParseError> {
    Stream::from_description(&Description::parse(text.as_bytes()).unwrap())
}

#[test]
fn a_stream_comes_back_from_its_announcement() {
    let independent = Stream { mode: StreamMode::Independent, control: None, ..stream() };
    let single = Stream { layers: vec![stream().layers[0]], ..stream() };
    let ladder = Stream { content: StreamContent::Hls, repair: Some(7706), ..independent.clone() };
    let rtp = Stream { content: StreamContent::Rtp(rtp_formats()), ..stream() };
    for stream in [stream(), independent, single, ladder, rtp] {
        let text = stream.describe("umbel 0.1.0").emit();
        assert_eq!(parse(&text), Ok(Some(stream)), "{text}");
    }
    let text = stream().describe("umbel").emit();
    assert!(text.contains("a=group:DDP 0 1 2\r\n") && text.contains("a=depend:129 lay 1:129\r\n"));
}

#[test]
fn an_announcement_fits_one_packet_and_with_all_layers_every_directory() {
    let v6: IpAddr = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
    let group: IpAddr = "ff35::8111:2222".parse().unwrap();
    let longest = |layers: usize| Stream {
        name: "x".repeat(session::NAME_LEN).parse().unwrap(),
        source: SocketAddr::new(v6, 40123),
        base: Channel { source: Some(v6), group, port: 65535 },
        control: Some(Channel { source: None, group: "ff15::8111:2222".parse().unwrap(), port: 1 }),
        layers: vec![LayerInfo { kbit_per_s: 100_000, ..stream().layers[0] }; layers],
        content: "video 1 1280x720 60000/1001".parse().unwrap(),
        repair: Some(65535),
        ..stream()
    };
    for (layers, len) in [(6, 1_400), (LAYERS, crate::sap::PAYLOAD_LEN)] {
        let text = longest(layers).describe("umbel 0.1.0").emit();
        assert!(text.len() <= len, "{} bytes:\n{text}", text.len());
        assert_eq!(parse(&text), Ok(Some(longest(layers))));
    }
}

#[test]
fn layers_are_on_consecutive_groups() {
    let groups: Vec<String> = stream().channels().iter().map(|c| c.group.to_string()).collect();
    assert_eq!(groups, ["232.7.7.7", "232.7.7.8", "232.7.7.9"]);
}

#[test]
fn a_stream_is_announced_at_its_site_with_and_without_a_control_group() {
    let directory = |stream: Stream| sap::directory_for(stream.announced_with()).to_string();
    assert_eq!(directory(stream()), "239.255.255.255");
    assert_eq!(directory(Stream { control: None, ..stream() }), "239.255.255.255");
    let base = Channel { group: "ff35::8000:7".parse().unwrap(), ..stream().base };
    assert_eq!(directory(Stream { control: None, base, ..stream() }), "ff05::2:7ffe");
}

#[test]
fn a_session_of_another_kind_is_no_stream() {
    let mut description = stream().describe("umbel");
    description.attributes.retain(|attribute| attribute.name != RLM);
    assert_eq!(Stream::from_description(&description), Ok(None));
}

#[test]
fn what_is_missing_or_out_of_range_is_refused() {
    let text = stream().describe("umbel").emit();
    for (good, broken) in [
        ("x-umbel-rlm:1", "x-umbel-rlm:2"),
        ("x-umbel-tsi:3417", "x-umbel-tsi:-1"),
        ("x-umbel-tsi", "x-umbel-tsj"),
        ("192.0.2.2 40123", "192.0.2.2 0"),
        ("192.0.2.2 40123", "239.0.2.2 40123"),
        ("192.0.2.2 40123", "::1 40123"),
        ("scope:32", "scope:0"),
        ("scope:32", "scope:256"),
        ("mode:cumulative", "mode:magic"),
        ("symbol:1372", "symbol:0"),
        ("symbol:1372", "symbol:65536"),
        ("video 1 640", "sound 1 640"),
        ("video 1 640", "video 1 0"),
        ("video 1 640", "video 1 8193"),
        ("x360", "x"),
        ("30/1", "30/0"),
        ("30/1", "0/1"),
        ("30/1", "1001/1"),
        ("30/1", "1/1001"),
        ("30/1", "30"),
        ("control:239.255.7.7 7705", "control:10.255.7.7 7705"),
        ("control:239.255.7.7 7705", "control:239.255.7.7 0"),
        ("control:239.255.7.7 7705", "control:ff15::1 7705"),
        ("control:239.255.7.7 7705", "control:239.255.7.7 7704"),
        ("232.7.7.7/32", "10.7.7.7/32"),
        ("232.7.7.8/32", "232.7.7.9/32"),
        ("232.7.7.9/32", "232.7.7.8/32"),
        ("incl IN IP4 *", "excl IN IP4 *"),
        ("* 192.0.2.2", "* 239.0.2.2"),
        ("b=AS:320", "b=AS:0"),
        ("b=AS:320", "b=CT:320"),
        ("fec:8 4", "fec:0 4"),
        ("fec:8 4", "fec:8 0"),
        ("fec:8 4", "fec:250 6"),
        ("fec:8 4", "fec:8"),
        ("s=lecture", "s=a@b"),
    ] {
        let broken_text = text.replacen(good, broken, 1);
        assert_ne!(text, broken_text, "{good}");
        assert!(parse(&broken_text).is_err(), "{broken}");
    }
    let repaired = Stream { repair: Some(7706), ..stream() }.describe("umbel").emit();
    assert!(parse(&repaired.replace("repair:7706", "repair:0")).is_err(), "no port");
    let ports = text.replacen("m=video 7704", "m=video 7706", 1);
    assert!(parse(&ports).is_err(), "layers on two ports");
    let anyone = text.replace("source-filter", "a-filter");
    assert!(parse(&anyone).is_err(), "layers of any source");
    let silent = text.replace("ALC/UDP", "RTP/AVP");
    assert!(parse(&silent).is_err(), "no layers");
    let many = Stream { layers: vec![stream().layers[0]; LAYERS + 1], ..stream() };
    assert!(parse(&many.describe("umbel").emit()).is_err(), "too many layers");
}

#[test]
fn formats_of_rtp_are_those_of_session_descriptions() {
    // As `ffmpeg -sdp_file` writes it.
    let text = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
        a=tool:libavformat 59.27.100\r\nm=video 5004 RTP/AVP 96\r\nb=AS:200\r\n\
        a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n\
        m=audio 5006 RTP/AVP 0 97\r\na=rtpmap:97 opus/48000/2\r\n";
    let description = Description::parse(text.as_bytes()).unwrap();
    let [video, audio] = &description.media[..] else { panic!("{description:?}") };
    let format = RtpFormat::of_medium(video).unwrap();
    assert_eq!((format.encoding(), format.clock_rate()), (Some("H264"), 90_000));
    assert_eq!(format.parameters.as_deref(), Some("packetization-mode=1"));
    assert_eq!(format.to_string(), "video H264/90000");
    let format = RtpFormat::of_medium(audio).unwrap();
    assert_eq!((format.payload_type, format.map.as_deref(), format.clock_rate()), (0, None, 8_000));
    for (good, broken) in [
        ("5004 RTP/AVP 96", "5004 RTP/SAVP 96"),
        ("5004 RTP/AVP 96", "5004 RTP/AVP 97"),
        ("5004 RTP/AVP 96", "5004 RTP/AVP 128"),
        ("5004 RTP/AVP 96", "5004 RTP/AVP 72"),
        ("H264/90000", "H264/0"),
        ("H264/90000", "H264"),
    ] {
        let description = Description::parse(text.replace(good, broken).as_bytes()).unwrap();
        assert!(RtpFormat::of_medium(&description.media[0]).is_err(), "{broken}");
    }
    let announced = Stream { content: StreamContent::Rtp(rtp_formats()), ..stream() };
    let announced = announced.describe("umbel").emit();
    for (good, broken) in [
        ("x-umbel-rtp:video 96", "x-umbel-rtp:video 128"),
        ("x-umbel-rtp:video 96", "x-umbel-rtp:Vi-deo 96"),
        ("x-umbel-rtp:video 96", "x-umbel-rtp:video"),
        ("x-umbel-rtp:video 96", "rtp:video 96"),
        ("rtpmap:96", "rtpmap:95"),
    ] {
        assert!(parse(&announced.replacen(good, broken, 1)).is_err(), "{broken}");
    }
}
