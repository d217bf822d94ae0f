//! The layers, as the session description of their sender has them.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use anyhow::{Context, bail};
use umbel_engine::units::{Rate, counted};
use umbel_net::interface::Family;
use umbel_wire::sdp::{self, Offer};
use umbel_wire::stream::{LAYERS, LayerFec, RtpFormat};

use super::Lane;
use super::sockets::Entrance;

/// Most bytes of a file. Longer descriptions could not be announced.
const FILE_LEN: u64 = 1 << 16;

/// The layers of a description.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) entrances: Vec<Entrance>,
    pub(super) formats: Vec<RtpFormat>,
    kbit_per_s: Vec<Option<u64>>,
}

impl Described {
    /// Reads a file; tells `note` which of its media are left out.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or its media cannot be received.
    pub(super) fn read(path: &Path, note: impl Fn(&str)) -> anyhow::Result<Described> {
        let name = path.display();
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(FILE_LEN).read_to_end(&mut bytes));
        read.with_context(|| {
            format!(
                "cannot read {name}: start the sender first, which writes it (ffmpeg: -sdp_file)"
            )
        })?;
        Described::parse(&bytes, note).with_context(|| format!("{name}"))
    }

    /// Parses a description.
    ///
    /// # Errors
    ///
    /// If its media cannot be received.
    fn parse(bytes: &[u8], note: impl Fn(&str)) -> anyhow::Result<Described> {
        let offers = sdp::offers(bytes)?;
        let count = offers.iter().filter(|offer| offer.media.port != 0).count();
        if count == 0 {
            bail!(
                "all media have port 0, so that they are not sent: a camera gives ports by RTSP \
                 only (ffmpeg -i rtsp://… -c copy -f rtp … -sdp_file … sends on what it gets)"
            );
        }
        if count > LAYERS {
            bail!("{count} media: a stream has 1 to {LAYERS} layers, each a medium");
        }
        let mut described =
            Described { entrances: Vec::new(), formats: Vec::new(), kbit_per_s: Vec::new() };
        for offer in &offers {
            let Offer { line, media, .. } = offer;
            if media.port == 0 {
                note(&format!("left out: {} in line {line}, whose port is 0", media.kind));
                continue;
            }
            let entrance = entrance(offer).with_context(|| place(offer))?;
            let address = entrance.address;
            if described.entrances.iter().any(|other| other.address == address) {
                bail!("line {line}: two media at {address}: each layer needs its own port");
            }
            described.entrances.push(entrance);
            described.formats.push(RtpFormat::of_medium(media).with_context(|| place(offer))?);
            described.kbit_per_s.push(media.bandwidth);
        }
        Ok(described)
    }

    /// Returns the rates of the layers on the wire.
    ///
    /// # Errors
    ///
    /// If one is not told, or other layers were given.
    pub(super) fn rates(
        &self,
        given: Option<Vec<Rate>>,
        headroom: f64,
    ) -> anyhow::Result<Vec<Rate>> {
        let count = self.formats.len();
        if let Some(given) = given {
            if given.len() != count {
                bail!(
                    "--layers has {}, and the session description {}",
                    counted(given.len(), "rate"),
                    if count == 1 { "1 medium".to_owned() } else { format!("{count} media") },
                );
            }
            return Ok(given);
        }
        let rate = |(number, told): (usize, &Option<u64>)| {
            let told = told.with_context(|| {
                format!("medium {number} has no rate (`b=AS`): give those of all media by --layers")
            })?;
            let bits_per_s = told as f64 * 1e3 * (1.0 + headroom);
            let rate = Rate::from_bits_per_s(bits_per_s as u64).filter(|_| bits_per_s < 1e11);
            rate.with_context(|| format!("medium {number}: b=AS:{told} is out of range"))
        };
        (1..).zip(&self.kbit_per_s).map(rate).collect()
    }

    /// Checks that a receiver can change from any layer to the next.
    ///
    /// # Errors
    ///
    /// If the encodings are not in order, or not in one format.
    pub(super) fn check_simulcast(&self, rates: &[Rate]) -> anyhow::Result<()> {
        if !rates.is_sorted() {
            bail!("--simulcast: encodings go from the least rate to the greatest");
        }
        let map = &self.formats[0].map;
        if let Some(other) = self.formats.iter().find(|format| format.map != *map) {
            bail!(
                "--simulcast: {} and {other}: all encodings must have one format, since players \
                 see them as one stream",
                self.formats[0]
            );
        }
        Ok(())
    }

    /// Returns the layers as they are sent.
    pub(super) fn lanes(
        &self,
        rates: &[Rate],
        codes: &[Option<LayerFec>],
        packet_len: u16,
        family: Family,
    ) -> Vec<Lane> {
        let codes = codes.iter().copied().chain(std::iter::repeat(None));
        let len = f64::from(packet_len);
        let share = len / (len + family.header_bytes() as f64);
        let layers = rates.iter().zip(codes).zip(&self.formats);
        let lane = |((&rate, fec), format): ((&Rate, _), &RtpFormat)| Lane {
            rate,
            pace: Rate::from_bits_per_s((rate.bits_per_s() as f64 * share) as u64).unwrap_or(rate),
            fec,
            payload_type: format.payload_type,
        };
        layers.map(lane).collect()
    }
}

/// Returns which medium an error is about.
fn place(offer: &Offer) -> String {
    format!("{} in line {}", offer.media.kind, offer.line)
}

/// Returns where a medium is received.
fn entrance(offer: &Offer) -> anyhow::Result<Entrance> {
    let host = offer.host.as_deref().context("no address (`c=`) to receive at")?;
    let port = offer.media.port;
    let address = if let Ok(address) = host.parse::<IpAddr>() {
        SocketAddr::new(address, port)
    } else {
        let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
        found.with_context(|| format!("`{host}` has no address"))?
    };
    Ok(Entrance { address, sources: offer.sources.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ffmpeg -sdp_file` writes it of two outputs.
    const TWO: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nt=0 0\r\n\
        a=tool:libavformat 59.27.100\r\n\
        m=video 5004 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\nb=AS:200\r\n\
        a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n\
        m=video 5006 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\nb=AS:600\r\n\
        a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n";

    fn described(text: &str) -> anyhow::Result<Described> {
        Described::parse(text.as_bytes(), |_| ())
    }

    fn rate(kbit_per_s: u64) -> Rate {
        Rate::from_bits_per_s(kbit_per_s * 1_000).unwrap()
    }

    #[test]
    fn a_description_gives_ports_formats_and_rates() {
        let two = described(TWO).unwrap();
        let ports: Vec<u16> =
            two.entrances.iter().map(|entrance| entrance.address.port()).collect();
        assert_eq!((ports, two.formats[1].encoding()), (vec![5004, 5006], Some("H264")));
        assert_eq!(two.rates(None, 0.25).unwrap(), [rate(250), rate(750)]);
        let rates = two.rates(Some(vec![rate(100), rate(300)]), 0.25).unwrap();
        let lanes = two.lanes(&rates, &[], 1400, Family::V4);
        let pace = Rate::from_bits_per_s((100_000.0 * 1400.0 / 1428.0) as u64).unwrap();
        assert_eq!((lanes[0].rate, lanes[0].pace, lanes[1].fec), (rate(100), pace, None));
        two.check_simulcast(&rates).unwrap();
    }

    #[test]
    fn a_description_that_cannot_be_streamed_is_refused_with_a_reason() {
        for (good, broken, reason) in [
            ("5006", "5004", "two media at 127.0.0.1:5004"),
            ("RTP/AVP", "RTP/SAVP", "video in line 6: "),
            ("c=IN IP4 127.0.0.1\r\n", "", "video in line 6: no address"),
            ("IP4 127.0.0.1\r\nb", "IP4 nowhere.invalid\r\nb", "`nowhere.invalid` has no address"),
            ("video 500", "video 0 RTP/AVP 96\r\ni=", "all media have port 0"),
            ("m=video", "i=video", "no line `m=`"),
        ] {
            let text = TWO.replace(good, broken);
            let error = described(&text).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|line| line.contains(reason)), "{error:?}");
        }
        let two = described(&TWO.replace("b=AS:600\r\n", "")).unwrap();
        assert!(two.rates(None, 0.0).unwrap_err().to_string().contains("--layers"));
        assert!(two.rates(Some(vec![rate(1)]), 0.0).is_err());
        let two = described(&TWO.replacen("H264", "H265", 1)).unwrap();
        assert!(two.check_simulcast(&[rate(1), rate(2)]).is_err());
        assert!(described(TWO).unwrap().check_simulcast(&[rate(2), rate(1)]).is_err());
    }

    #[test]
    fn media_of_port_0_are_left_out_by_name_and_groups_are_joined() {
        let notes = std::cell::RefCell::new(Vec::new());
        let text = TWO.replace("video 5006", "application 0").replacen(
            "127.0.0.1\r\nb",
            "239.1.1.1/32\r\na=source-filter: incl IN IP4 239.1.1.1 10.0.0.7\r\nb",
            1,
        );
        let one =
            Described::parse(text.as_bytes(), |line| notes.borrow_mut().push(line.to_owned()));
        let one = one.unwrap();
        let entrance = Entrance {
            address: "239.1.1.1:5004".parse().unwrap(),
            sources: vec!["10.0.0.7".parse().unwrap()],
        };
        assert_eq!((&one.entrances[..], one.formats.len()), (&[entrance][..], 1));
        assert_eq!(*notes.borrow(), ["left out: application in line 12, whose port is 0"]);
        let host = described(&TWO.replacen("IP4 127.0.0.1\r\nb", "IP4 localhost\r\nb", 1)).unwrap();
        assert!(host.entrances[0].address.ip().is_loopback());
    }
}
