//! A running box gets another daemon.

use icebox_lifecycle::BoxId;

use super::{FIRST, Subject};
use crate::driver::{DriverError, Egress, FreezeMode};

impl Subject<'_> {
    pub(super) async fn renewed(&self, id: BoxId) {
        self.booted(id).await;
        self.inside.remember(id, "word").await;
        for _ in 0..2 {
            self.driver.renew(id).await.expect("renew");
            let word = self.inside.recall(id).await;
            assert_eq!(word.as_deref(), Some("word"), "its programs go on");
        }
        self.driver
            .freeze(id, FreezeMode::Copy(FIRST))
            .await
            .expect("freeze");
        let still = self.driver.renew(id).await;
        assert!(matches!(still, Err(DriverError::Failed(_))), "{still:?}");
        self.driver.evict(id, FIRST).await.expect("evict");
        let absent = self.driver.renew(id).await;
        assert!(matches!(absent, Err(DriverError::Gone(_))), "{absent:?}");
        self.driver.thaw(id, FIRST).await.expect("thaw");
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        self.driver.renew(id).await.expect("renew");
        let word = self.inside.recall(id).await;
        assert_eq!(word.as_deref(), Some("word"), "it goes on after a thaw");
        self.destroyed(id).await;
    }
}
