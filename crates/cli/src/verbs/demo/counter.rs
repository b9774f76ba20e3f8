//! The program that the demo runs in its box, and the judgement of what it wrote: whether it is the same process, with
//! the same memory, that went on counting where it was. Owns the script and its format.

/// What it holds in memory, in MiB.
pub(super) const HELD_MIB: u64 = 32;

/// Counts ten times a second, in memory and in /work/count, and on SIGUSR1 writes to /work/check whether the random text
/// it holds in memory is still what it was.
pub(super) const PROGRAM: &str = r#"LC_ALL=C
held=$(head -c 25165824 /dev/urandom | base64 -w 0)
sum=$(printf %s "$held" | sha256sum)
trap 'if [ "$(printf %s "$held" | sha256sum)" = "$sum" ]; then echo same; else echo different; fi > check' USR1
n=0
while :; do
  n=$((n + 1))
  echo "$n $$ ${EPOCHREALTIME/./}"
  sleep 0.1
done > count"#;

/// What the count in the box comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// The last number.
    pub(super) last: u64,
    /// The process that wrote all of it.
    pub(super) pid: u32,
    /// The longest time between two numbers since one of them, in microseconds.
    pub(super) longest_pause_us: u64,
    /// The number after which that was.
    pub(super) paused_after: u64,
}

/// Reads /work/count; pauses are looked for from the number `since` on. Errors say what is wrong with it, for people.
pub(super) fn judge(text: &str, since: u64) -> Result<Count, String> {
    // The last line may be read while it is written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut count: Option<(Count, u64)> = None;
    for line in whole.lines() {
        let (n, pid, at_us) = fields(line).ok_or_else(|| format!("a line of it is `{line}`"))?;
        let Some((count, last_us)) = &mut count else {
            if n != 1 {
                return Err(format!("it begins at {n}"));
            }
            count = Some((
                Count {
                    last: 1,
                    pid,
                    longest_pause_us: 0,
                    paused_after: 1,
                },
                at_us,
            ));
            continue;
        };
        if n != count.last + 1 {
            return Err(format!("after {} comes {n}", count.last));
        }
        if pid != count.pid {
            return Err(format!(
                "process {} wrote {}, process {pid} wrote {n}",
                count.pid, count.last
            ));
        }
        let pause_us = at_us.saturating_sub(*last_us);
        if count.last >= since && pause_us > count.longest_pause_us {
            count.longest_pause_us = pause_us;
            count.paused_after = count.last;
        }
        (count.last, *last_us) = (n, at_us);
    }
    count
        .map(|(count, _)| count)
        .ok_or_else(|| "it is empty".to_owned())
}

/// `number pid microseconds`
fn fields(line: &str) -> Option<(u64, u32, u64)> {
    let mut fields = line.split(' ');
    let read = (
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    );
    fields.next().is_none().then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_without_a_gap_by_one_process_is_good_and_its_longest_pause_is_found() {
        let text = "1 23 0\n2 23 90100\n3 23 98100\n4 23 98200\n5 2";
        let count = judge(text, 2).unwrap();
        let expected = Count {
            last: 4,
            pid: 23,
            longest_pause_us: 8_000,
            paused_after: 2,
        };
        assert_eq!(count, expected);
    }

    #[test]
    fn whatever_is_not_the_same_program_going_on_is_told() {
        let table = [
            ("", "empty"),
            ("1 23 100", "empty"),
            ("2 23 100\n", "begins at 2"),
            ("1 23 100\n3 23 200\n", "after 1 comes 3"),
            ("1 23 100\n1 23 200\n", "after 1 comes 1"),
            ("1 23 100\n2 24 200\n", "process 24 wrote 2"),
            ("1 23 100\nboo\n", "`boo`"),
            ("1 23 100 7\n", "`1 23 100 7`"),
        ];
        for (text, expected) in table {
            let told = judge(text, 1).unwrap_err();
            assert!(told.contains(expected), "{text:?}: {told}");
        }
    }

    #[test]
    fn the_program_counts_and_vouches_for_its_memory() {
        let dir = tempfile::tempdir().unwrap();
        // A little text, so that the test is quick; what it does with it is the same.
        let program = PROGRAM.replace("25165824", "3000");
        assert_ne!(program, PROGRAM);
        let mut shell = std::process::Command::new("bash")
            .args(["-c", &program])
            .current_dir(dir.path())
            .spawn()
            .expect("bash runs");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let wait = |done: &dyn Fn() -> bool| {
            let watch = crate::stopwatch::Stopwatch::start();
            while !done() && watch.elapsed().as_secs() < 30 {
                std::thread::yield_now();
            }
        };
        wait(&|| judge(&read("count"), 1).is_ok_and(|count| count.last >= 3));
        let count = judge(&read("count"), 1);
        let pid = rustix::process::Pid::from_child(&shell);
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
        wait(&|| read("check").ends_with('\n'));
        let check = read("check");
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(count.as_ref().is_ok_and(|c| c.last >= 3), "{count:?}");
        assert_eq!(check, "same\n");
    }
}
