//! A host that is asked for room at random, by seed: whatever happens, no more is given than there is, nobody is
//! forgotten, and nobody overtakes without a reason.

use std::collections::{BTreeMap, BTreeSet};

use icebox_lifecycle::fleet::{Fleet, Place, Room, Standing, Ticket, Wish};
use icebox_lifecycle::id::BOX_ID_LEN;
use icebox_lifecycle::{BoxId, Time};

const HOST: Room = Room {
    boxes: 6,
    memory_mb: 4_000,
    milli_cpus: 9_000,
};
const ACCOUNT: Room = Room {
    boxes: 4,
    ..Room::ENDLESS
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }
}

fn wish(number: u8) -> Wish {
    Wish {
        id: BoxId::from_random([number; BOX_ID_LEN]),
        account: u64::from(number % 3),
        needs: Room {
            boxes: 1,
            memory_mb: 200 + 100 * u64::from(number % 9),
            milli_cpus: 500 + 500 * u64::from(number % 4),
        },
    }
}

/// What the host must have given, counted beside it.
#[derive(Default)]
struct Model {
    /// What each box takes, and whether it is up.
    holds: BTreeMap<BoxId, (Wish, Room, bool)>,
    waiting: BTreeSet<Ticket>,
}

impl Model {
    fn up(&mut self, wish: Wish) {
        self.holds.insert(wish.id, (wish, wish.needs, true));
    }

    fn taken(&self, of: impl Fn(&Wish) -> bool) -> Room {
        let mut sum = Room::default();
        for (wish, room, _) in self.holds.values() {
            if of(wish) {
                sum.boxes += room.boxes;
                sum.memory_mb += room.memory_mb;
                sum.milli_cpus += room.milli_cpus;
            }
        }
        sum
    }

    fn check(&self, fleet: &Fleet, given: Option<Wish>) {
        assert_eq!(fleet.taken(), self.taken(|_| true));
        let waiting: BTreeSet<Ticket> = fleet
            .queue()
            .flat_map(|place| place.waiters.iter().map(|(ticket, _)| *ticket))
            .collect();
        assert_eq!(waiting, self.waiting);
        let Some(wish) = given else { return };
        // What was found may be too much; what is given never is.
        let (host, own) = (fleet.taken(), self.taken(|w| w.account == wish.account));
        assert!(host.boxes <= HOST.boxes && own.boxes <= ACCOUNT.boxes);
        assert!(host.memory_mb <= HOST.memory_mb && host.milli_cpus <= HOST.milli_cpus);
    }
}

fn play(seed: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let mut fleet = Fleet::new(HOST, ACCOUNT);
    let mut model = Model::default();
    let (mut now, mut given, mut late) = (0, 0, 0);
    for ticket in 0..4_000 {
        now += i64::try_from(random.below(500)).unwrap();
        let wish = wish(u8::try_from(random.below(20)).unwrap());
        let is_up = model.holds.get(&wish.id).is_some_and(|(_, _, up)| *up);
        let mut gave = None;
        match random.below(12) {
            0..5 => {
                let wait_ms = i64::try_from(random.below(4)).unwrap() * 5_000;
                match fleet.enter(Time(now), wish, ticket, wait_ms) {
                    Place::Taken => {
                        gave = (!is_up).then_some(wish);
                        model.up(wish);
                    }
                    Place::Waits { until } => {
                        assert!(!is_up && until > Time(now));
                        model.waiting.insert(ticket);
                    }
                    Place::NoRoom(_) => assert!(!is_up),
                    Place::Never(shortage) => panic!("{wish:?} fits: {shortage:?}"),
                }
            }
            5..7 => {
                fleet.leave(wish.id);
                model.holds.remove(&wish.id);
            }
            7 if is_up => {
                let memory = Room {
                    memory_mb: wish.needs.memory_mb,
                    ..Room::default()
                };
                let kinds = [Standing::Stays, Standing::Warm, Standing::Leaves];
                fleet.stands(wish, kinds[usize::try_from(random.below(3)).unwrap()]);
                model.holds.insert(wish.id, (wish, memory, false));
            }
            8 if random.below(10) == 0 => {
                for ticket in fleet.call_off(wish.id) {
                    assert!(model.waiting.remove(&ticket));
                }
                fleet.found(wish);
                model.up(wish);
            }
            9 => {
                let gone = random.below(ticket + 1);
                if fleet.hang_up(wish.id, gone) {
                    assert!(model.waiting.remove(&gone));
                }
            }
            _ => {
                let first = fleet.queue().map(|place| place.wish).collect::<Vec<_>>();
                if let Some((next, tickets)) = fleet.next_up() {
                    for ticket in tickets {
                        assert!(model.waiting.remove(&ticket), "it goes once");
                    }
                    // Whoever was before it has all that its account may.
                    for other in first.iter().take_while(|other| other.id != next.id) {
                        let own = model.taken(|w| w.account == other.account);
                        assert!(own.boxes >= ACCOUNT.boxes, "{next:?} overtook {other:?}");
                    }
                    model.up(next);
                    gave = Some(next);
                    given += 1;
                }
            }
        }
        for (_, ticket, _) in fleet.give_up(Time(now)) {
            assert!(model.waiting.remove(&ticket), "it gives up once");
            late += 1;
        }
        assert!(fleet.next_deadline().is_none_or(|at| at > Time(now)));
        model.check(&fleet, gave);
    }
    (given, late)
}

// 5.9, 14.1
#[test]
fn no_more_is_given_than_there_is_and_nobody_is_forgotten() {
    let (mut given, mut late) = (0, 0);
    for seed in 0..40 {
        let (some, too_late) = play(seed);
        given += some;
        late += too_late;
    }
    assert!(
        given > 1_000 && late > 1_000,
        "{given} went, {late} gave up"
    );
}
