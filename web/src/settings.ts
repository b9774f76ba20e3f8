// What a person chose on this device. Nothing secret is kept here.

const PREFIX = 'icebox.';

export function readSetting(name: string): string | null {
	try {
		return localStorage.getItem(PREFIX + name);
	} catch {
		return null;
	}
}

export function writeSetting(name: string, value: string) {
	try {
		localStorage.setItem(PREFIX + name, value);
	} catch {
		// A browser that keeps nothing forgets the choice at the next visit.
	}
}
