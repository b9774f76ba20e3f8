// What the boxes dialect answers, as far as the page reads it. Names are the API's; every value may be one that this page
// does not know yet.

export interface Hold {
	kind: string;
	label?: string;
	until?: string;
}

export interface Service {
	name: string;
	port: number;
	url?: string;
	web: boolean;
	lastProxyError?: ProxyError;
}

export interface ProxyError {
	at: string;
	status: number;
	error: string;
	count: number;
}

export interface Step {
	at: string;
	kind: string;
	summary: string;
	note?: string;
	detail?: string;
	ms?: number;
	ok: boolean;
	exitCode?: number;
	signal?: string;
	timedOut?: boolean;
	error?: string;
}

export interface Why {
	at: string;
	rule: string;
	text: string;
}

export interface Box {
	id: string;
	status: string;
	name?: string;
	goal?: string;
	createdAt: string;
	lastUsedAt: string;
	statusReason?: string;
	idleTimeoutMin?: number;
	stopsAt?: string;
	restorableUntil?: string;
	keep?: boolean;
	waitsForRoom?: { before: number; since: string; until: string };
	freeze?: { at?: string; blockedBy: Hold[] };
	tier?: string;
	keeps?: string;
	snapshotError?: string;
	egress?: { failure?: { error: string; retryAt?: string } };
	agent?: { state: string; idleSec: number; untracked?: boolean };
	services: Service[];
	screenActive?: boolean;
	private?: boolean;
	health?: { sceneErrors?: (ProxyError & { place: string })[] };
	image: string;
	size: { cpus: number; memoryMb: number; diskGb: number };
	host?: string;
	why?: Why[];
	steps?: Step[];
}

export interface Slots {
	running: number;
	maximum: number;
	waiting: number;
}

export interface BoxList {
	boxes: Box[];
	nextCursor?: string;
	at?: string;
	slots?: Slots;
}

export interface Account {
	account: string;
	credits: { unlimited?: boolean; left?: number; used: number; perHour: number; runsOutAt?: string };
	boxes: { active: number; stopped: number };
	notices?: string[];
}

export interface BoxEvent {
	seq: number;
	at: string;
	box: string;
	kind: string;
	from?: string;
	rule?: string;
	text?: string;
}

export interface Proc {
	execId: string;
	cmd: string;
	background: boolean;
	running: boolean;
	exitCode?: number;
	signal?: string;
	timedOut: boolean;
	ms: number;
	stdoutBytes: number;
	stderrBytes: number;
}
