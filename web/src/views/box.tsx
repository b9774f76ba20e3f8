// A box's page: what it is for, why it is as it is, what happens next, what was done, what runs.

import { useComputed } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, boxPath, call, get } from '../api';
import { isAsleep, isEnded, isLeft, isUp, label, nameOf, prospects, reasons, tone } from '../explain';
import { paths } from '../route';
import { boxes, events, now } from '../store';
import { ago, exact, full, span } from '../time';
import type { Box, Service } from '../types';
import { Button, coded, copy, Icon, Link, say, sentence, Told } from '../ui';
import { useWatched } from '../watch';
import { words } from '../words';
import { Continue, Freeze, Keep, Limit, Rename, Restore, ShutDown, Wake } from './actions';
import { Commands } from './commands';
import { Files } from './files';
import { Shell } from './shell';
import { Steps } from './steps';
import { Timeline } from './timeline';

const LOOK_MS = 5_000;

export function BoxView({ id, part }: { id: string; part: 'page' | 'files' | 'terminal' }) {
	const w = words.value;
	const listed = useComputed(() => boxes.value.get(id));
	// The stream says when to look again; in between, the past of the box is looked at now and then.
	const news = useComputed(() => events.value.findLast((event) => event.box === id)?.seq ?? 0);
	const usedAt = listed.value?.lastUsedAt;
	const seen = useWatched((signal) => get<Box>(boxPath(id), signal), LOOK_MS, [id, news.value, usedAt]);
	const box = seen.value && listed.value ? { ...seen.value, ...listed.value } : (seen.value ?? listed.value);
	useEffect(() => {
		document.title = box ? `${nameOf(box)} · ${w.title}` : w.title;
	}, [box && nameOf(box), w]);
	if (!box) {
		const missing = seen.error instanceof ApiError && seen.error.status === 404;
		if (!missing) return seen.error ? <p class="empty">{sentence(seen.error)}</p> : <div class="blank" aria-busy="true" />;
		return (
			<div class="empty">
				<h1>{w.noSuchBox}</h1>
				<p>{w.noSuchBoxHelp}</p>
				<p>
					<Link to={paths.list}>{w.back}</Link>
				</p>
			</div>
		);
	}
	return (
		<article class="box">
			<Head box={box} part={part} />
			{part === 'page' && <Body box={box} />}
			{part === 'files' && <Files box={box} />}
			{part === 'terminal' && <Shell box={box} />}
		</article>
	);
}

function Head({ box, part }: { box: Box; part: string }) {
	const w = words.value;
	const ended = isEnded(box);
	return (
		<header class="box-head">
			<nav class="crumbs" aria-label={w.back}>
				<Link to={paths.list}>
					<Icon name="back" />
					{w.back}
				</Link>
			</nav>
			<div class="title">
				<h1>{nameOf(box)}</h1>
				<span class={`label ${tone(box)}`}>{w.labels[label(box)]}</span>
				{!ended && <Rename box={box} />}
			</div>
			{isAsleep(box) && <p class="not-using">{w.notUsing}</p>}
			<p class={box.goal ? 'goal' : 'goal muted'}>{box.goal ?? w.noGoal}</p>
			<div class="acts">
				{isAsleep(box) && <Wake box={box} kind={isLeft(box) ? 'plain' : 'main'} />}
				{!ended && <Continue box={box} kind={isLeft(box) ? 'main' : 'plain'} />}
				{isUp(box) && <Freeze box={box} />}
				{ended && box.restorableUntil && <Restore box={box} kind="main" />}
				{!ended && <Keep box={box} />}
				{!ended && <Limit box={box} />}
				{!ended && <ShutDown box={box} />}
			</div>
			{!ended && (
				<nav class="tabs sub" aria-label={nameOf(box)}>
					<Link to={paths.box(box.id)} aria-current={part === 'page' ? 'page' : undefined}>
						{w.details}
					</Link>
					<Link to={paths.files(box.id)} aria-current={part === 'files' ? 'page' : undefined}>
						<Icon name="files" />
						{w.actions.files}
					</Link>
					<Link to={paths.terminal(box.id)} aria-current={part === 'terminal' ? 'page' : undefined}>
						<Icon name="terminal" />
						{w.actions.terminal}
					</Link>
				</nav>
			)}
		</header>
	);
}

function Body({ box }: { box: Box }) {
	const w = words.value;
	const at = now.value;
	const why = isEnded(box) ? w.whyStopped : isAsleep(box) ? w.whyAsleep : w.whyAwake;
	return (
		<div class="box-body">
			<section class="card why" aria-labelledby="why">
				<h2 id="why">{why}</h2>
				<ul>
					{reasons(box, at, w).map((reason, index) => (
						<li key={index}>
							{coded(reason.text)}
							{reason.until && <span class="until">{reason.until}</span>}
						</li>
					))}
				</ul>
			</section>
			<section class="card next" aria-labelledby="next">
				<h2 id="next">{w.whatNext}</h2>
				<ul>
					{prospects(box, at, w).map((line, index) => (
						<li key={index}>{line}</li>
					))}
				</ul>
			</section>
			<Timeline box={box} />
			{!isEnded(box) && <Commands box={box} />}
			<Steps box={box} />
			<Services box={box} />
			<Problems box={box} />
			<History box={box} />
			<Facts box={box} />
		</div>
	);
}

function Services({ box }: { box: Box }) {
	const w = words.value;
	if (box.services.length === 0) return null;
	const open = !isEnded(box);
	return (
		<section class="card" aria-labelledby="services">
			<h2 id="services">{w.services}</h2>
			<ul class="services">
				{box.services.map((service) => (
					<li key={service.name}>
						<ServiceLink box={box} service={service} open={open} />
						<span class="muted">
							{w.port(service.port)}
							{box.private && ` · ${w.private}`}
						</span>
						{service.lastProxyError && (
							<span class="trouble">
								{service.lastProxyError.status} {service.lastProxyError.error} · {w.times(service.lastProxyError.count)}
							</span>
						)}
					</li>
				))}
			</ul>
			{isAsleep(box) && <p class="hint">{w.openWakes}</p>}
		</section>
	);
}

/** A link to a service; of a private box it is signed as it is opened (rule 8.8). */
function ServiceLink({ box, service, open }: { box: Box; service: Service; open: boolean }) {
	if (!open || !service.url) return <span>{service.name}</span>;
	const sign = async (event: MouseEvent) => {
		if (!box.private) return;
		event.preventDefault();
		// Opened before the answer comes, or the browser takes it for one that nobody asked for.
		const tab = window.open('about:blank');
		try {
			const link = await call<{ url: string }>('POST', boxPath(box.id, '/link'), { service: service.name });
			if (tab) tab.location.href = link.url;
		} catch (error) {
			tab?.close();
			say(sentence(error), true);
		}
	};
	return (
		<a href={service.url} target="_blank" rel="noreferrer" onClick={(event) => void sign(event)}>
			{service.name}
			<Icon name="open" />
		</a>
	);
}

/** What went wrong lately: at its URLs, and in calls. */
function Problems({ box }: { box: Box }) {
	const w = words.value;
	const at = now.value;
	const scene = (box.health?.sceneErrors ?? []).map((error) => ({
		at: error.at,
		text: `${error.place}: ${error.status} ${error.error}`,
		count: error.count,
	}));
	const failed = (box.steps ?? [])
		.filter((step) => !step.ok)
		.slice(-5)
		.map((step) => ({ at: step.at, text: `${step.summary}: ${step.error ?? w.failed}`, count: 1 }));
	const all = [...scene, ...failed].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
	if (all.length === 0) return null;
	return (
		<section class="card problems" aria-labelledby="problems">
			<h2 id="problems">{w.problems}</h2>
			<ul>
				{all.map((problem, index) => (
					<li key={index}>
						<time dateTime={problem.at} title={full(problem.at, w)}>
							{exact(problem.at, at, w)}
						</time>
						<span lang="en">{problem.text}</span>
						{problem.count > 1 && <span class="muted">{w.times(problem.count)}</span>}
					</li>
				))}
			</ul>
		</section>
	);
}

/** The last decisions: what was decided, by which rule. */
function History({ box }: { box: Box }) {
	const w = words.value;
	const at = now.value;
	const why = [...(box.why ?? [])].reverse();
	if (why.length === 0) return null;
	return (
		<details class="card">
			<summary>
				<h2>{w.history}</h2>
			</summary>
			<ol class="history">
				{why.map((reason, index) => (
					<li key={index}>
						<time dateTime={reason.at} title={full(reason.at, w)}>
							{exact(reason.at, at, w)}
						</time>
						<Told text={reason.text} />
						<span class="rule">{w.rule(reason.rule)}</span>
					</li>
				))}
			</ol>
		</details>
	);
}

function Facts({ box }: { box: Box }) {
	const w = words.value;
	const at = now.value;
	const memory = box.size.memoryMb % 1024 === 0 ? `${box.size.memoryMb / 1024} GB` : `${box.size.memoryMb} MB`;
	const facts: [string, string | undefined][] = [
		[w.facts.image, box.image],
		[w.facts.size, w.size(box.size.cpus, memory, box.size.diskGb)],
		[w.facts.host, box.host],
		[w.facts.made, exact(box.createdAt, at, w)],
		[w.facts.used, `${exact(box.lastUsedAt, at, w)} (${ago(box.lastUsedAt, at, w)})`],
		[w.facts.limit, box.idleTimeoutMin ? span(box.idleTimeoutMin * 60, w) : w.none],
		[w.facts.tier, box.tier && (w.tiers[box.tier] ?? box.tier)],
	];
	return (
		<section class="card facts" aria-labelledby="facts">
			<h2 id="facts">{w.details}</h2>
			<dl>
				<div>
					<dt>{w.facts.id}</dt>
					<dd>
						<code>{box.id}</code>
						<Button kind="quiet" icon="copy" onClick={() => void copy(box.id)}>
							<span class="out-of-sight">{w.actions.copyLink}</span>
						</Button>
					</dd>
				</div>
				{facts.map(
					([name, value]) =>
						value && (
							<div key={name}>
								<dt>{name}</dt>
								<dd>{value}</dd>
							</div>
						),
				)}
			</dl>
		</section>
	);
}
