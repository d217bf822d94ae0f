use super::*;

const LOSSY: Treatment = Treatment { loss: 0.3, cut: None };

#[test]
fn everything_comes_with_a_loss_of_30_percent_on_every_link_both_ways() {
    for_seeds(150, |seed| {
        let net = Net::random(seed, &LOSSY);
        let mut run = Run::new(&net, seed, UNITS, |_| true, |_, _, _| {});
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "30 % loss");
    });
}
