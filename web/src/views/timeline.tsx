// Past and future of a box on one small line. Moments are far apart by turns, so places on the line are in order and near to
// scale: each gap gets room by the root of its length.

import { points, type Point } from '../explain';
import { now } from '../store';
import { distance, full, moment } from '../time';
import type { Box } from '../types';
import { words } from '../words';

function places(all: Point[]): number[] {
	const gaps = all.slice(1).map((point, index) => Math.sqrt(Math.max(0, point.at - (all[index]?.at ?? 0))));
	const sum = gaps.reduce((total, gap) => total + gap, 0) || 1;
	const least = 0.55 / Math.max(1, gaps.length);
	const wanted = gaps.map((gap) => least + (gap / sum) * (1 - least * gaps.length));
	let place = 0;
	return [0, ...wanted.map((gap) => (place += gap))];
}

export function Timeline({ box }: { box: Box }) {
	const w = words.value;
	const at = now.value;
	const all = points(box, at);
	const spots = places(all);
	const here = spots[all.findIndex((point) => point.kind === 'now')] ?? 0;
	return (
		<section class="card timeline" aria-labelledby="timeline">
			<h2 id="timeline">{w.timeline}</h2>
			<div class="line" style={{ '--here': here }}>
				<ol>
					{all.map((point, index) => {
						const time = new Date(point.at).toISOString();
						const text = moment(time, at, w);
						return (
							<li
								key={point.kind}
								class={`${point.kind} ${point.at > at ? 'ahead' : 'past'}`}
								style={{ '--place': spots[index] ?? 0 }}
								title={full(time, w)}
							>
								<span class="spot" aria-hidden="true" />
								<span class="point">{w.points[point.kind]}</span>
								<time dateTime={time}>{point.guess ? `~${text}` : text}</time>
								{point.kind !== 'now' && <span class="far">{distance(time, at, w)}</span>}
							</li>
						);
					})}
				</ol>
			</div>
		</section>
	);
}
