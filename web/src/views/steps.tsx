// What was done with a box, with the notes of who did it.

import { useState } from 'preact/hooks';
import { now } from '../store';
import { exact, full, span } from '../time';
import type { Box, Step } from '../types';
import { words, type Words } from '../words';

const SHOWN = 8;

export function Steps({ box }: { box: Box }) {
	const w = words.value;
	const [all, setAll] = useState(false);
	const steps = [...(box.steps ?? [])].reverse();
	const shown = all ? steps : steps.slice(0, SHOWN);
	return (
		<section class="card" aria-labelledby="steps">
			<h2 id="steps">{w.steps}</h2>
			{steps.length === 0 && <p class="muted">{w.noSteps}</p>}
			<ol class="steps">
				{shown.map((step, index) => (
					<StepLine key={steps.length - index} step={step} />
				))}
			</ol>
			{steps.length > SHOWN && (
				<button type="button" class="button quiet" onClick={() => setAll(!all)}>
					{all ? w.showFewer : w.showAll(steps.length)}
				</button>
			)}
		</section>
	);
}

function StepLine({ step }: { step: Step }) {
	const w = words.value;
	const kind = w.stepKinds[step.kind] ?? step.kind;
	const detail = step.detail && (w.stepDetails[step.detail] ?? step.detail);
	const plain = step.kind === 'start' || step.kind === 'stop';
	return (
		<li class={step.ok && (step.exitCode ?? 0) === 0 && !step.signal ? 'step' : 'step failed'}>
			<time dateTime={step.at} title={full(step.at, w)}>
				{exact(step.at, now.value, w)}
			</time>
			<div>
				{step.note && <p class="note">{step.note}</p>}
				<p>
					<span class="kind">{detail ? `${kind} · ${detail}` : kind}</span>
					{!plain && <code title={step.summary}>{step.summary}</code>}
				</p>
				{step.error && (
					<p class="trouble" lang="en">
						{step.error}
					</p>
				)}
			</div>
			<span class="result">{result(step, w)}</span>
		</li>
	);
}

function result(step: Step, w: Words): string {
	const took = !step.ms || step.detail === 'background' ? '' : step.ms < 1000 ? `${step.ms} ms` : span(step.ms / 1000, w);
	const how = step.timedOut
		? w.timedOut
		: step.signal
			? w.killed(step.signal)
			: !step.ok
				? w.failed
				: step.exitCode
					? w.exited(step.exitCode)
					: '';
	return [how, took].filter(Boolean).join(' · ');
}
